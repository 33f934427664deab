"""Loading of released models of any architecture."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxpe.nn.checkpoints.decoders import load_causal_lm
from jaxpe.nn.checkpoints.encoder_decoders import load_seq2seq_lm
from jaxpe.nn.checkpoints.encoders import Bert, load_encoder
from jaxpe.nn.checkpoints.gguf_weights import gguf_file
from jaxpe.nn.checkpoints.model_config import find_architecture
from jaxpe.nn.heads import CausalLM, Seq2SeqLM
from jaxpe.nn.transformer import Encoder


def load_model(path: str | os.PathLike, **options: Any) -> CausalLM | Seq2SeqLM | Bert | Encoder:
    """Load a released model of any supported architecture.

    Decoders are loaded with their head by `load_causal_lm`, and T5 by `load_seq2seq_lm`. Encoders
    are loaded without a head: BERT and MPNet by `Bert.load`, others as an `Encoder`.
    `load_masked_lm` loads encoders with a head.

    Args:
        path: .gguf file, folder with one, or Hugging Face directory.
        **options: dtype, param_dtype, attention, dropout, scan and remat, as in the function that
            loads the model.

    Raises:
        InputError: errors of `load_causal_lm`.

    >>> jaxpe.nn.load_model("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere does not exist: pass a .gguf file, a folder with one, or ...
    """
    architecture = find_architecture(path) if gguf_file(Path(path)) is None else None
    return _LOADERS["decoder" if architecture is None else architecture.kind](path, **options)


_LOADERS: Mapping[str, Callable[..., Any]] = {
    "decoder": load_causal_lm,
    "encoder": load_encoder,
    "encoder_decoder": load_seq2seq_lm,
    "bert": Bert.load,
}
