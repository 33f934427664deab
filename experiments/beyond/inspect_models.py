"""What position does in four released models, as `jaxpe inspect` finds it on IMDB.

MiniLM and MPNet (encoders without a head), SmolLM2-135M-Instruct and Gemma 3 270M (decoders), with
the options of the command as they come. Models are looked for in the folder that JAXPE_MODELS_DIR
names (`fetch_models.py --gemma` fills it), documents in JAXPE_DATA_DIR. Each stage is kept in the
cache folder once it is done (`JAXPE_CACHE_DIR`), so that a run that is stopped resumes.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import DataMissingError, Run, main
from jaxpe._core.files import cache_directory
from jaxpe._core.results import load_result, result_files
from jaxpe.analysis.inspect import STAGES, InspectOptions, InspectResult, Means, inspect_model

MODELS = {
    "MiniLM": "all-MiniLM-L6-v2",
    "MPNet": "all-mpnet-base-v2",
    "SmolLM2": "SmolLM2-135M-Instruct",
    "Gemma3": "gemma-3-270m",
}
FACTS = ("encoding", "kind", "layers", "heads", "context", "positions", "examples", "documents")
MOST = 0.5  # share of a head's weight from which it is of one kind


def inspected(name: str, *, quick: bool) -> InspectResult:
    """The result for a model, which is kept."""
    models, data = (os.environ.get(f"JAXPE_{which}_DIR") for which in ("MODELS", "DATA"))
    source = Path(data or ".", "imdb", "train.jsonl.gz")
    folder = Path(models or ".", MODELS[name])
    if not folder.is_dir() or not source.is_file():
        raise DataMissingError(f"{folder} or {source} is not there")
    around = cache_directory() or Path(tempfile.gettempdir())
    kept = around / "inspect_models" / (f"{name}-quick" if quick else name)
    if (kept / "inspect.json").is_file():
        return load_result(InspectResult, kept / "inspect.json")
    stages = tuple(stage for stage in STAGES if stage not in ("spectral", "heads"))
    options = InspectOptions(model=str(folder), source=str(source), quick=quick, stages=stages)
    found = inspect_model(options)
    kept.mkdir(parents=True, exist_ok=True)
    for file, content in result_files(found, "inspect").items():
        (kept / file).write_bytes(content)
    return found


def interval(found: Any) -> dict[str, float]:
    return found._asdict() | {"mean": found.estimate}


def at(found: Means, place: Any) -> dict[str, float]:
    return {name: float(np.asarray(x)[place]) for name, x in found._asdict().items()}


def attention(found: Any) -> dict[str, Any]:
    by_layer = found.share.mean
    top = int(np.argmax(by_layer))
    weights = {"first": found.first, "before": found.at_offset(-1)}
    return {
        "heads": found.first.size,
        "share": interval(found.overall),
        "top_layer": top,
        "top_share": float(by_layer[top]),
        "last_share": float(by_layer[-1]),
        "sink": interval(found.sink),
        "sink_by_chance": found.first_by_chance,
        "counts": {name: int((weight > MOST).sum()) for name, weight in weights.items()},
    }


def probe(found: Any) -> dict[str, Any]:
    best = int(np.argmax(found.r2.mean))
    rows = {name: at(found.r2, k) for name, k in (("first", 0), ("best", best), ("last", -1))}
    return rows | {"best_layers": int(found.layers[best])}


def reach(result: InspectResult) -> dict[str, Any]:
    """Loss, far context and needles of a decoder; nothing of others."""
    loss, needles = result.loss, result.needles
    if loss is None or needles is None:
        return {}
    distances, lengths = range(len(loss.distances)), range(len(needles.lengths))
    far = {one.name: [at(one.gain, k) for k in distances] for one in loss.far}
    by_length = [at(needles.by_length, k) for k in lengths]
    return {
        "loss": {"texts": loss.texts, "distances": loss.distances, "far": far},
        "needles": {
            "lengths": needles.lengths, "by_length": by_length, "chance": needles.chance,
        },
    }  # fmt: skip


def numbers(result: InspectResult) -> dict[str, Any]:
    ablation: Any = result.ablation
    return {
        "facts": {name: getattr(result.facts, name) for name in FACTS},
        "attention": attention(result.attention),
        "probe": probe(result.probe),
        "ablation": {
            "shift": ablation.shift,
            "reference": ablation.reference,
            "value": {one.name: interval(one.value) for one in ablation.moved},
            "change": {one.name: interval(one.change) for one in ablation.moved},
        },
        **reach(result),
    }


def experiment(run: Run) -> dict[str, Any]:
    return {name: numbers(inspected(name, quick=run.quick)) for name in MODELS}


if __name__ == "__main__":
    main(experiment, "inspect_models")
