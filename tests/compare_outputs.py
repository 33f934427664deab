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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = {
    "encodings-overview": "encodings --form json",
    "report-synthetic": "report synthetic --out {out}",
    "report-stdlib": "report stdlib --out {out}",
    "report-sst2": "report sst2 --out {out}",
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


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        return _run(Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve(), sys.argv[4:])
    if sys.argv[1:2] == ["compare"]:
        sys.exit(_compare(Path(sys.argv[2]), Path(sys.argv[3])))
    sys.exit(__doc__)


def _run(checkout: Path, folder: Path, names: list[str]) -> None:
    """Run the commands of a checkout, each in a folder of its own."""
    for name, words in COMMANDS.items():
        if names and name not in names:
            continue
        out = folder / name
        out.mkdir(parents=True, exist_ok=True)
        places = {"out": out / "out", "models": os.environ.get("JAXPE_MODELS_DIR", "")}
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", "from jaxpe.cli import main; getattr(main, 'main', main)()"]
            + [word.format(**places) for word in words.split()],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        (out / "stdout").write_text(done.stdout)
        (out / "stderr").write_text(done.stderr)
        print(f"{name}: {done.returncode}, {time.perf_counter() - started:.0f} s", flush=True)


def _compare(old: Path, new: Path) -> int:
    """Print the first differences of every JSON that a command wrote; 1 where there are any."""
    failures = 0
    for name in COMMANDS:
        written = sorted(
            path.relative_to(old / name)
            for path in (old / name).rglob("*.json*")
            if "checkpoints" not in path.parts
        )
        if name.startswith("encodings"):
            written = [Path("stdout")]
        found = [line for path in written for line in _differences(old / name, new / name, path)]
        print(f"{name}: {len(written)} files, {len(found)} differences")
        print("".join(f"    {line}\n" for line in found[:20]), end="")
        failures += bool(found) or not written
    return int(failures > 0)


def _differences(old: Path, new: Path, path: Path) -> list[str]:
    if not (new / path).exists():
        return [f"{path} is not written"]
    sides = [(folder / path).read_text() for folder in (old, new)]
    if path.suffix == ".jsonl":
        values = [[json.loads(line) for line in side.splitlines()] for side in sides]
    else:
        values = [json.loads(side) for side in sides]
    return [f"{path}{line}" for line in _unequal(values[0], values[1])]


def _unequal(old: Any, new: Any, at: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new} - _OF_THE_RUN):
            if key not in old or key not in new:
                yield f"{at}.{key}: only in the {'new' if key in new else 'old'}"
            else:
                yield from _unequal(old[key], new[key], f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, both in enumerate(zip(old, new, strict=True)):
            yield from _unequal(both[0], both[1], f"{at}[{index}]")
    elif not _alike(old, new):
        yield f"{at}: {str(old)[:60]} | {str(new)[:60]}"


def _alike(old: Any, new: Any) -> bool:
    """Equal, or numbers that differ by the rounding of float32 or of six digits written."""
    if isinstance(old, float) and isinstance(new, float):
        return old == new or abs(old - new) <= _ROUNDING * max(1.0, abs(old))
    return old == new


if __name__ == "__main__":
    main()
