"""Key measures of released models, as `jaxpe inspect` finds them with its options as they come.

All models in the folder that JAXPE_MODELS_DIR names are inspected (`experiments/fetch_models.py`
fills it; add your own), or the pages that `jaxpe inspect` wrote into folders there are read. Text
models read the built-in corpus. A model of sequences reads `sequences.*` in its folder, and one
with a file `mlm` is a masked language model with its head. What is found is merged with what is
stored, also in jaxpe/analysis/inspected.json: every page shows its model beside these.
Stages are kept in the cache folder, so that a run that is stopped resumes.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import DataMissingError, Run, main
from experiments.rows import read_rows
from jaxpe._core.errors import InputError
from jaxpe._core.json_values import to_json
from jaxpe._core.results import load_result
from jaxpe.analysis.inspect import InspectOptions, InspectResult, inspect_model
from jaxpe.analysis.inspect.job import STAGES
from jaxpe.analysis.inspections import (
    MEASURES,
    ModelMeasures,
    inspected_models,
    key_measures,
    text_reach,
)
from jaxpe.report.pages.inspect_rows import measure

STORED = Path(__file__).parents[2] / "jaxpe" / "analysis" / "inspected.json"


def inspection(folder: Path, *, quick: bool) -> InspectResult:
    """Stored inspection in a folder, or the inspection of the model in it."""
    if (folder / "inspect.json").is_file():
        return load_result(InspectResult, folder / "inspect.json")
    source = next((str(path) for path in sorted(folder.glob("sequences.*"))), "stdlib")
    task = "mlm" if (folder / "mlm").is_file() else None
    stages = tuple(stage for stage in STAGES if stage not in ("spectral", "heads"))
    return inspect_model(
        InspectOptions(model=str(folder), source=source, task=task, quick=quick, stages=stages)
    )


def details(found: InspectResult) -> dict[str, Any]:
    """What else users of a model want to know: shifts, table, truncation, sinks, far context."""
    rows: dict[str, Any] = {"cut": found.facts.cut}
    if (ablation := found.ablation) is not None:
        moved = {move.name: move for move in ablation.moved}
        rows["moved"] = {
            name: (move.value if ablation.measure == "embedding" else move.change)._asdict()
            for name, move in moved.items()
        }
        rows |= {"shift": ablation.shift, "unrelated": ablation.reference}
    if found.encoding is not None and (table := found.encoding.table) is not None:
        halves = np.array_split(table.norms, 2)
        rows["norms"] = {
            "first": float(np.median(table.norms[: found.facts.positions])),
            "second_half": float(np.median(halves[1])),
            "tokens": table.token_norm,
        }
    if found.attention is not None and (sinks := found.attention.sinks) is not None:
        rows["sinks"] = {
            "heads": sinks.rate_overall._asdict(),
            "norm": float(np.nanmax(sinks.norm.mean)) if len(sinks.positions) else None,
            "position": int(sinks.positions[0]) if len(sinks.positions) else None,
        }
    if (reach := text_reach(found)) is not None and reach.parts is not None:
        rows["parts"] = [float(x) for x in reach.parts.mean]
        rows["middle"] = reach.lost_in_the_middle
    if found.loss is not None and found.loss.far:
        rows["far"] = {
            "distances": [int(distance) for distance in found.loss.distances],
            "gain": {name: x.tolist() for name, x in found.loss.far[0].gain._asdict().items()},
        }
    return rows


def inspections(folders: list[Path], *, quick: bool) -> Iterator[InspectResult]:
    """Inspection of each folder; one that cannot be inspected is named and left out."""
    for folder in folders:
        try:
            yield inspection(folder, quick=quick)
        except InputError as error:
            print(f"{folder.name}: {error}", file=sys.stderr)


def tables(models: list[ModelMeasures]) -> list[tuple[str, list[str], list[tuple[str, ...]]]]:
    """Title, header and rows of the tables: the models, and the measures of each kind."""
    header = ["model", "parameters", "encoding", "context", "text", "positions", "longest"]
    facts = [
        (
            one.model, f"{one.parameters / 1e6:,.0f} M", one.encoding, f"{one.context:,}",
            one.source, f"{one.positions:,}", f"{one.longest:,}",
        )
        for one in models
    ]  # fmt: skip
    made: list[tuple[str, list[str], list[tuple[str, ...]]]] = [("Models", header, [*facts])]
    for title, causal in (("Decoders", True), ("Encoders", False)):
        chosen = [one for one in models if (one.kind == "causal") == causal]
        names = [name for name in MEASURES if any(name in one.values for one in chosen)]
        rows: list[tuple[str, ...]] = [
            (one.model, *(_cell(one, name) for name in names)) for one in chosen
        ]
        made.append((title, ["measure, interval", *(MEASURES[name][0] for name in names)], rows))
    return made


def _cell(one: ModelMeasures, name: str) -> str:
    """A measure with its interval; of a bound, how far was tried."""
    if name not in one.values:
        return "–"
    value, ends, _ = measure(one, name).texts()
    return f"{value} ({ends or f'tried to {one.tried:,}'})"


def experiment(run: Run) -> dict[str, Any]:
    models = Path(os.environ.get("JAXPE_MODELS_DIR", "nowhere"))
    if not models.is_dir():
        raise DataMissingError("JAXPE_MODELS_DIR names no folder of models")
    folders = sorted(path for path in models.iterdir() if path.is_dir())
    found = {one.model: one for one in inspected_models()}
    more = read_rows(run.out / "inspected_models.json").get("details", {})
    for result in inspections(folders, quick=run.quick):
        one = key_measures(result)
        found[one.model], more[one.model] = one, details(result)
    stored = sorted(found.values(), key=lambda one: (one.kind != "causal", one.parameters))
    if not run.quick:
        STORED.write_text(json.dumps(to_json(stored), indent=1) + "\n")
    return {
        "models": {one.model: to_json(one) for one in stored},
        "details": more,
        "tables": tables(stored),
    }


if __name__ == "__main__":
    main(experiment, "inspected_models", grows=True)
