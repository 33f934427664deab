"""Key measures of released models, as `jaxpe inspect` finds them with its options as they come.

    python -m experiments.beyond.inspected_models [FOLDER ...]

Folders of models, or pages that `jaxpe inspect` wrote. Without any, all models in the folder that
JAXPE_MODELS_DIR names (`experiments/fetch_models.py` fills it). Their measures are merged into
jaxpe/analysis/inspected.json, beside which every page shows its model, and into the page of the
site. Text models read the built-in corpus; a model of sequences reads the file `sequences.*` in its
folder. Stages are kept in the cache folder, so that a run that is stopped resumes.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxpe._core.errors import InputError
from jaxpe._core.files import cache_directory
from jaxpe._core.json_values import to_json
from jaxpe._core.results import load_result
from jaxpe.analysis.inspect import InspectOptions, InspectResult, inspect_model
from jaxpe.analysis.inspections import (
    InspectionComparison,
    ModelMeasures,
    inspected_models,
    key_measures,
)
from jaxpe.report.inspections import inspections_rows

ROOT = Path(__file__).parents[2]
STORED = ROOT / "jaxpe" / "analysis" / "inspected.json"
PAGE = ROOT / "docs" / "inspected-models.md"
HEAD = """<!-- Written by `python -m experiments.beyond.inspected_models`. -->
# Models inspected

Key measures of {count} models whose weights are in public packages, as `jaxpe inspect MODEL` finds them with its
options as they come. Every page of [an inspection](inspecting-a-model.md) shows its model beside the range of these.
Text models read the built-in corpus, models of sequences read sequences of their kind; numbers are comparable where text
and lengths are alike. The measures are defined on the page of every inspection; intervals are 95 %, over documents or texts.
What their users would want to know is in [the results](results/beyond.md#models-inspected).

Add yours:

```sh
python -m experiments.beyond.inspected_models MODEL [MODEL ...]
```
"""


def folders() -> list[Path]:
    """Folders of models that were given, or all that are there."""
    if len(sys.argv) > 1:
        return [Path(name) for name in sys.argv[1:]]
    models = Path(os.environ.get("JAXPE_MODELS_DIR", "."))
    return sorted(path for path in models.iterdir() if path.is_dir())


def inspection(folder: Path) -> InspectResult:
    """Stored inspection in a folder, or the inspection of the model in it."""
    if (folder / "inspect.json").is_file():
        return load_result(InspectResult, folder / "inspect.json")
    sequences = next((str(path) for path in sorted(folder.glob("sequences.*"))), "stdlib")
    kept = (cache_directory() or Path(tempfile.gettempdir())) / "inspected_models" / folder.name
    task = "mlm" if (folder / "mlm").is_file() else None
    return inspect_model(InspectOptions(model=str(folder), source=sequences, task=task), kept)


def page(models: list[ModelMeasures]) -> str:
    """The page of the site."""
    parts = [HEAD.format(count=len(models))]
    for title, header, rows in inspections_rows(InspectionComparison(models, {}, [])):
        lines = [f"## {title}", "", f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
        parts.append("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n")
    return "\n".join(parts)


def merged(found: Iterator[ModelMeasures]) -> list[ModelMeasures]:
    """Stored measures and new ones, decoders first, by size."""
    models = {one.model: one for one in [*inspected_models(), *found]}
    return sorted(models.values(), key=lambda one: (one.kind != "causal", one.parameters))


def measured() -> Iterator[ModelMeasures]:
    """Measures of each folder; one that cannot be inspected is named and left out."""
    for folder in folders():
        try:
            yield key_measures(inspection(folder))
        except InputError as error:
            print(f"{folder.name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    found = merged(measured())
    STORED.write_text(json.dumps(to_json(found), indent=1) + "\n")
    PAGE.write_text(page(found))
    print(f"{len(found)} models: {PAGE}")
