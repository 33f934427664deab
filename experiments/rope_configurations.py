"""What published rotary configurations mean, and where the programs that read them disagree.

Eighteen configurations as models publish them (`tests/analysis/rope/published.json`), and seventeen
of what goes wrong (`reported.json`): of threads of users where these are named, else made to show
one cause. Each is read by the rules of transformers 5, 4.57 and 4.55, vLLM 0.25 and llama.cpp;
readings of transformers are held against what it computed itself (`tests/parity`).
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import BLUE, GREY, VERMILION, Run, main, new_figure, save_figure  # pyrefly: ignore

from jaxpe.analysis.rope import RopeAnalysis, RopeOptions, explain_rope

TESTS = Path(__file__).parent.parent / "tests"
PARITY = {"4.55": "transformers 4.55", "4.57": "transformers 4.57", "5.23": "transformers 5"}
READERS = 5


def analysed(fields: dict[str, Any], folder: Path) -> RopeAnalysis:
    """The analysis of a configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return explain_rope(RopeOptions(config=str(path)))


def row(found: RopeAnalysis) -> dict[str, Any]:
    """The numbers of a configuration in the table."""
    layer = max(found.layers, key=lambda one: one.reach)
    readings = [one for one in found.readings if one.layers == layer.layers and not one.problem]
    errors = [error for error in found.precision if error.length == found.length]
    refused = {one.reader for one in found.readings if one.problem}
    apart = {
        name
        for one in found.disagreements
        if one.what not in ("longest", "problem")
        for name, value in one.values.items()
        if value != one.values[readings[0].reader]
    }
    return {
        "base": readings[0].base,
        "rotated": readings[0].rotated,
        "rope_type": readings[0].rope_type,
        "attention_factor": readings[0].attention_factor,
        "query_factor": readings[0].query_factor,
        "logit_factor": readings[0].logit_factor,
        "trained": layer.trained,
        "longest": found.length,
        "frequencies": len(layer.inverse),
        "never_round": layer.never_round,
        "unseen": layer.unseen,
        "kept": layer.kept,
        "divided": layer.divided,
        "error": {f"{e.dtype}, {e.rounded}": e.largest for e in errors},
        "lost": {f"{e.dtype}, {e.rounded}": e.lost for e in errors},
        "apart": sorted(apart),
        "differing_frequencies": differing_frequencies(readings),
        "refused": sorted(refused),
        "warnings": [one.code for one in found.warnings if one.severity != "note"],
        "notes": [one.code for one in found.warnings if one.severity == "note"],
    }


def differing_frequencies(readings: list[Any]) -> dict[str, Any]:
    """By reader: number of frequencies unlike those of the first one, and the largest ratio − 1."""
    first = readings[0].inverse
    differences = {
        one.reader: np.abs(one.inverse / first - 1)
        for one in readings[1:]
        if len(one.inverse) == len(first)
    }
    return {
        reader: {"number": int(np.sum(of > 1e-6)), "largest": float(of.max())}
        for reader, of in differences.items()
        if of.max() > 1e-6
    }


def parity(found: dict[str, RopeAnalysis]) -> dict[str, Any]:
    """Largest differences from what transformers computed, over all configurations it reads."""
    theirs = json.loads((TESTS / "parity" / "rope_readers.json").read_text())
    compared, frequencies, factors = 0, 0.0, 0.0
    for version, reader in PARITY.items():
        for name, analysis in found.items():
            known = theirs[version][name]
            own = [one for one in analysis.readings if one.reader == reader and not one.problem]
            for layers, numbers in known.items() if "error" not in known and own else ():
                reading = next((one for one in own if one.layers == layers), own[0])
                ratio = reading.inverse[::8] / np.array(numbers["inverse"])
                compared += 1
                frequencies = max(frequencies, float(np.abs(ratio - 1).max()))
                factors = max(factors, abs(reading.attention_factor - numbers["factor"]))
    return {"compared": compared, "frequencies": frequencies, "factors": factors}


def draw(rows: dict[str, dict[str, Any]], run: Run) -> None:
    """Share of frequencies that never come round in training, and of those reached unseen."""
    figure, axes = new_figure("Frequencies that never come round in training", height=5.2)
    axis = axes[0, 0]
    names = list(rows)[::-1]
    places = np.arange(len(names))
    for key, colour, label in (
        ("never_round", BLUE, "never come round"),
        ("unseen", VERMILION, "of these, phases beyond training at the longest text"),
    ):
        shares = [rows[name][key] / rows[name]["frequencies"] for name in names]
        axis.barh(places, shares, color=colour, height=0.7, label=label)
    axis.set(yticks=places, yticklabels=names, xlabel="share of the frequencies")
    axis.axvline(0.5, color=GREY, lw=0.8, ls=":")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    save_figure(run, "rope_configurations", figure)


def experiment(run: Run) -> dict[str, Any]:
    folder = TESTS / "analysis" / "rope"
    published, reported = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("published", "reported")
    )
    with tempfile.TemporaryDirectory() as place:
        found = {n: analysed(f, Path(place)) for n, f in (published | reported).items()}
    rows = {name: row(found[name]) for name in published}
    draw(rows, run)
    told = [row(found[name])["warnings"] for name in reported]
    return {
        "published": rows,
        "reported": {name: row(found[name]) for name in reported},
        "parity": parity(found),
        "counts": {
            "published": len(rows),
            "alike": sum(not one["apart"] and not one["refused"] for one in rows.values()),
            "apart": sum(bool(one["apart"]) for one in rows.values()),
            "refused": sum(bool(one["refused"]) for one in rows.values()),
            "warned": sum(bool(one["warnings"]) for one in rows.values()),
            "unseen": sum(bool(one["unseen"]) for one in rows.values()),
            "reported": len(reported),
            "reported_warned": sum(map(bool, told)),
        },
    }


if __name__ == "__main__":
    main(experiment, "rope_configurations")
