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
from jaxpe.analysis.inspect import InspectOptions, InspectResult, Means, inspect_model

MODELS = {
    "MiniLM": "all-MiniLM-L6-v2",
    "MPNet": "all-mpnet-base-v2",
    "SmolLM2": "SmolLM2-135M-Instruct",
    "Gemma3": "gemma-3-270m",
}
KINDS = {"first": "first", "before": -1, "itself": 0, "next": 1}
FACTS = ("encoding", "kind", "layers", "heads", "context", "positions", "examples", "documents")
MOST = 0.5  # share of a head's weight from which it is of one kind


class Told:
    """Progress as lines."""

    def track(self, items: Any, description: str, *, total: int | None = None) -> Any:
        return items

    def say(self, line: str) -> None:
        print(line, flush=True)


def inspected(name: str, *, quick: bool) -> InspectResult:
    """The result for a model; its stages are kept."""
    models, data = (os.environ.get(f"JAXPE_{which}_DIR") for which in ("MODELS", "DATA"))
    source = Path(data or ".", "imdb", "train.jsonl.gz")
    folder = Path(models or ".", MODELS[name])
    if not folder.is_dir() or not source.is_file():
        raise DataMissingError(f"{folder} or {source} is not there")
    around = cache_directory() or Path(tempfile.gettempdir())
    kept = around / "inspect_models" / (f"{name}-quick" if quick else name)
    options = InspectOptions(model=str(folder), source=str(source), quick=quick)
    return inspect_model(options, kept, progress=Told())


def interval(found: Any) -> dict[str, float] | None:
    return None if found is None else found._asdict() | {"mean": found.estimate}


def at(found: Means, place: Any) -> dict[str, float]:
    return {name: float(np.asarray(x)[place]) for name, x in found._asdict().items()}


def attention(result: InspectResult) -> dict[str, Any]:
    found: Any = result.attention
    weights = {
        name: found.first if kind == "first" else found.at_offset(int(kind))
        for name, kind in KINDS.items()
    }
    by_layer = found.share.mean
    top = int(np.argmax(by_layer))
    return {
        "heads": found.first.size,
        "share": interval(found.overall),
        "shuffled": found.shuffled,
        "top_layer": top,
        "top_share": float(by_layer[top]),
        "last_share": float(by_layer[-1]),
        "sink": interval(found.sink),
        "sink_by_chance": found.first_by_chance,
        "special": interval(found.special_overall),
        "dummy": interval(found.dummy_overall),
        "other": interval(found.other_overall),
        "counts": {name: int((weight > MOST).sum()) for name, weight in weights.items()},
        "largest": {name: float(weight.max()) for name, weight in weights.items()},
    }


def probe(result: InspectResult) -> dict[str, Any]:
    found: Any = result.probe
    best = int(np.argmax(found.r2.mean))
    return {
        "first": at(found.r2, 0),
        "best": at(found.r2, best),
        "best_layers": int(found.layers[best]),
        "last": at(found.r2, -1),
        "error": float(found.error[best]),
        "by_layer": found.r2.mean,
        "layers": found.layers,
    }


def ablation(result: InspectResult) -> dict[str, Any]:
    found: Any = result.ablation
    return {
        "measure": found.measure,
        "documents": found.documents,
        "shift": found.shift,
        "reference": found.reference,
        "value": {one.name: interval(one.value) for one in found.moved},
        "change": {one.name: interval(one.change) for one in found.moved},
    }


def reach(result: InspectResult) -> dict[str, Any]:
    """Loss, far context and needles of a decoder; nothing of others."""
    if result.loss is None or result.needles is None:
        return {}
    loss, needles = result.loss, result.needles
    own = loss.scaled[0].loss
    return {
        "loss": {
            "texts": loss.texts,
            "length": loss.length,
            "edges": loss.edges,
            "bins": [at(own, k) for k in range(len(own.mean))],
            "distances": loss.distances,
            "far": {
                one.name: [at(one.gain, k) for k in range(len(loss.distances))] for one in loss.far
            },
        },
        "needles": {
            "lengths": needles.lengths,
            "by_length": [at(needles.by_length, k) for k in range(len(needles.lengths))],
            "chance": needles.chance,
        },
    }


def geometry(result: InspectResult) -> dict[str, Any] | None:
    found = result.geometry
    if found is None:
        return None
    names = ("held_out", "sinusoidal", "own", "shuffled", "position_share")
    return {name: interval(getattr(found, name)) for name in names} | {
        "corrected": found.corrected,
        "correlation": found.correlation,
    }


def numbers(result: InspectResult) -> dict[str, Any]:
    table = None if result.encoding is None else result.encoding.table
    return {
        "facts": {name: getattr(result.facts, name) for name in FACTS},
        "table": None if table is None else {"rank": table.rank, "widest": table.widest},
        "geometry": geometry(result),
        "attention": attention(result),
        "probe": probe(result),
        "ablation": ablation(result),
        **reach(result),
    }


def experiment(run: Run) -> dict[str, Any]:
    return {name: numbers(inspected(name, quick=run.quick)) for name in MODELS}


if __name__ == "__main__":
    main(experiment, "inspect_models")
