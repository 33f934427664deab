"""Tiny checkpoints of every architecture: how far they are from transformers, in every use.

For each architecture of `tools/parity/make_models.py`, the largest absolute difference between what
jaxpe and transformers compute in float32: hidden states after the first and the last layer, logits
at once, logits through a cache two tokens at a time, logits with padding on the right and on the
left; and of parameters saved and loaded again. What transformers computes is stored in
`tests/parity/models.npz`, so that neither it nor torch is needed here.

For each family of llama.cpp, of a GGUF file of such a checkpoint that
`tools/parity/make_gguf_models.py` writes: logits against transformers, log-probabilities against
llama.cpp.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from experiments.common import Run, main
from tests.parity.tiny_models import GGUF, HF, decoder_errors, encoder_errors, gguf_errors
from tools.parity.make_gguf_models import CASES
from tools.parity.make_models import DECODERS, ENCODERS

KINDS = {
    "decoder": (DECODERS, decoder_errors),
    "encoder": (ENCODERS, encoder_errors),
}


def experiment(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {"models": {}, "versions": json.loads(str(HF["versions"]))}
    found |= {"gguf": {}, "gguf_versions": json.loads(str(GGUF["versions"]))}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, (cases, errors) in KINDS.items():
            for name in list(cases)[: 2 if run.quick else None]:
                found["models"][name] = {"kind": kind, "errors": errors(name, Path(scratch))}
                print(name, found["models"][name], flush=True)
        for name in list(CASES)[: 2 if run.quick else None]:
            found["gguf"][name] = gguf_errors(name, Path(scratch))
            print(f"{name}.gguf", found["gguf"][name], flush=True)
    every = [row["errors"] for row in found["models"].values()]
    found["largest"] = max(error for errors in every for error in errors.values())
    found["count"] = len(every)
    return found


if __name__ == "__main__":
    main(experiment, "model_parity")
