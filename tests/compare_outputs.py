"""Outputs of every command by two checkouts: equal but for seconds and rounding.

For a change that is to leave all results alone:

    python tests/compare_outputs.py run CHECKOUT FOLDER    # of the old checkout, and the new
    python tests/compare_outputs.py compare FOLDER FOLDER

Commands are run with the Python that runs this script; corpora come from JAXPE_DATA_DIR.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = {
    "encodings": "encodings --form json",
    "report-synthetic": "report synthetic --out {out}",
    "report-stdlib": "report stdlib --out {out}",
    "report-imdb": "report imdb --length 128 --out {out}",
    "count": "count stdlib --length 64 --out {out}",
    "rope": "rope --head-dim 64 --base 500000 --context 8192 --out {out}",
    "audit": "audit stdlib --examples 64 --steps 10 --out {out}",
    "inspect": "inspect {models}/all-MiniLM-L6-v2 --quick --examples 32 --out {out}",
    "train": "train stdlib --steps 20 --length 32 --out {out}",
    "extrapolate": "extrapolate --steps 60 --out {out}",
}
_ROUNDING = 5e-6
# Clock and place of a run, which differ between two runs of the same code.
_OF_THE_RUN = {"seconds", "seconds_per_step", "steps_per_second", "tokens_per_second", "out"}


def main(job: str, one: Path, other: Path) -> int:
    results = [_run(one, other, x) if job == "run" else _compare(one, other, x) for x in COMMANDS]
    return max(results)


def _run(checkout: Path, folder: Path, name: str) -> int:
    """Run a command of a checkout in a folder of its own."""
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    places = {"out": out / "out", "models": os.environ.get("JAXPE_MODELS_DIR", "")}
    with (out / "stdout.json").open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "jaxpe", *COMMANDS[name].format(**places).split()],
            env={**os.environ, "PYTHONPATH": str(checkout)}, cwd=folder, stdout=file,
        )  # fmt: skip
    print(f"{name}: {done.returncode}", flush=True)
    return done.returncode


def _compare(old: Path, new: Path, name: str) -> int:
    """Print the first differences of the JSON that a command wrote; 1 where there are any."""
    written = [path for path in (old / name).rglob("*.json*") if "checkpoints" not in path.parts]
    written = [path for path in written if name == "encodings" or path.name != "stdout.json"]
    found = [
        f"{path.name}{line}"
        for path in written
        for line in _unequal(*(_json(root / path.relative_to(old)) for root in (old, new)))
    ]
    print(f"{name}: {len(written)} files, {len(found)} differences")
    print("".join(f"    {line}\n" for line in found[:20]), end="")
    return int(bool(found) or not written)


def _json(path: Path) -> Any:
    if not path.exists():
        return "is not written"
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return [json.loads(line) for line in lines]


def _unequal(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Where values differ by more than the rounding of float32 or of six digits written."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new} - _OF_THE_RUN):
            yield from _unequal(old.get(key), new.get(key), f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, both in enumerate(zip(old, new, strict=True)):
            yield from _unequal(*both, f"{at}[{index}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not (old == new or abs(old - new) <= _ROUNDING * max(1.0, abs(old))):
            yield f"{at}: {old} | {new}"
    elif old != new:
        yield f"{at}: {str(old)[:60]} | {str(new)[:60]}"


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("run", "compare"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], *(Path(word).resolve() for word in sys.argv[2:])))
