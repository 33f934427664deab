"""The commit, the sources and the time that made the numbers of a results file.

`made_by` is the last entry of every file in `results/`:

- `commit`: the commit checked out when the script began;
- `changed`: files of `jaxpe` and `experiments` that were not as in this commit, so that the numbers
  are not those of the commit alone. A script is often run before it is committed, and is then here;
- `sources`: a digest of all Python files of `jaxpe` and `experiments` as they were, committed or
  not. `python -m experiments.provenance` prints that of the present ones;
- `cpu_seconds`, `seconds`: time of the run, of all its processes and by the clock. A file that
  grows by rows has the sum of its runs, and none where one of them was not recorded.

Files made before this was recorded have `commit`, the last that changed the file, and
`"from": "history"`: the sources that made them are those of this commit or older.
"""

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PARTS = ("jaxpe", "experiments")
KEY = "made_by"


def git(*words: str, folder: Path = ROOT) -> str:
    """Output of a git command in a checkout, this one or another; empty without a repository."""
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.rstrip()
    except FileNotFoundError:
        return ""


def sources_digest() -> str:
    """First 12 digits of the SHA-256 of names and contents of the Python files."""
    digest = hashlib.sha256()
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def made_by() -> dict[str, Any]:
    """Commit, changed files and digest of the sources, as they are now."""
    lines = git("status", "--porcelain", "--untracked-files=all", "--", *PARTS).splitlines()
    changed = sorted(line[3:] for line in lines if line.endswith(".py"))
    commit = git("rev-parse", "--short=7", "HEAD") or None
    return {"commit": commit, "changed": changed, "sources": sources_digest()}


# Scripts run for hours, and files are edited meanwhile: what counts is the state at the start.
_AT_START = made_by()
_BEGUN = time.perf_counter()
_EARLIER: dict[Path, dict[str, int]] = {}  # time of the runs before, of files that grow


def commit_at_start() -> str | None:
    """The commit checked out when the script began."""
    return _AT_START["commit"]


def time_taken() -> dict[str, int]:
    """Seconds of this run until now."""
    cpu, seconds = sum(os.times()[:4]), time.perf_counter() - _BEGUN
    return {"cpu_seconds": round(cpu), "seconds": round(seconds)}


def write_result(path: Path, result: dict[str, Any], *, grows: bool = False) -> None:
    """Write a results file with the commit, the sources and the time that made it."""
    own, took = {name: value for name, value in result.items() if name != KEY}, time_taken()
    if grows:
        if path not in _EARLIER:
            there = path.is_file()
            _EARLIER[path] = json.loads(path.read_text())[KEY] if there else dict.fromkeys(took, 0)
        earlier = _EARLIER[path]
        took = {name: earlier[name] + took[name] for name in took if name in earlier}
    path.write_text(json.dumps(own | {KEY: _AT_START | took}, indent=1) + "\n")


def from_history(path: Path) -> dict[str, str]:
    """For a file without an entry: the last commit that changed it."""
    commit = git("log", "-1", "--format=%h", "--abbrev=7", "--", str(path))
    return {"commit": commit or git("rev-parse", "--short=7", "HEAD"), "from": "history"}


def complete(path: Path) -> None:
    """Give a file that was made before this was recorded an entry from the history."""
    text = path.read_text()
    result = json.loads(text)
    if KEY not in result:
        indent = len(text.splitlines()[1]) - len(text.splitlines()[1].lstrip())
        path.write_text(json.dumps(result | {KEY: from_history(path)}, indent=indent) + "\n")


if __name__ == "__main__":
    print(sources_digest())
