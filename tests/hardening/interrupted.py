"""Every command, interrupted at random moments as by Ctrl-C or by a scheduler.

A signal goes to the whole process group, as a terminal sends it. The command must end soon with
128 + signal, without a traceback, and leave no process, no temporary file and no file that is not
whole.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.films import make_films
from tests.hardening.families import QUICK, SMALL_MODEL
from tests.hardening.kills import JAXPE, ROOT

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LIMIT_S = 2.0
MARK = "JAXPE_INTERRUPTED"  # variable by which processes of a command are found


class Interruption(NamedTuple):
    """How a command ended after a signal.

    - `moment`: seconds after its start at which the signal came; None where it had ended before.
    - `seconds`: how long it took to end.
    - `faults`: what is wrong: slow, another exit status, something left, a traceback.
    """

    command: str
    moment: float | None
    seconds: float
    faults: list[str]


def commands(folder: Path) -> dict[str, tuple[object, ...]]:
    """Words of every command that takes long; `{out}` stands for its folder."""
    films = make_films(folder / "films.tsv")
    others = make_films(folder / "others.tsv")
    others.write_text(others.read_text().replace("word", "other"))
    out = ("--out", "{out}")
    counts = [folder / "counts-a", folder / "counts-b"]
    for counted, source in zip(counts, (films, others), strict=True):
        words = ("--tokenizer", "characters", *QUICK["count"], "--out", counted)
        _run(("count", source, *words), folder)
    train = (
        "train",
        films,
        *SMALL_MODEL,
        "--steps",
        4000,
        "--probe-at",
        0,
        "--checkpoint-every",
        50,
    )
    models = os.environ.get("JAXPE_MODELS_DIR")  # without it `inspect` is left out
    inspect = ("inspect", f"{models}/all-MiniLM-L6-v2", "--quick", *out)
    return {
        **({"inspect": inspect} if models else {}),
        "report": ("report", "stdlib", *out),
        "count": ("count", "stdlib", *out),
        "count in processes": ("count", films, others, "--workers", 2, *out),
        "merge": ("merge", *counts, *out),
        "compare": ("compare", *counts, *out),
        "train": (*train, *out),
        "extrapolate": ("extrapolate", *out),
        "audit": ("audit", films, *QUICK["audit"], *out),
    }


def interruptions(folder: Path, *, number: int, seed: int) -> Iterator[Interruption]:
    """Interrupt the commands in turn, each at moments drawn evenly from the time it takes."""
    rng = np.random.default_rng(seed)
    words = commands(folder)
    seconds = {name: _run(own, folder) for name, own in words.items() if name != "train"}
    seconds["train"] = 20.0
    for k in range(number):
        name = list(words)[k % len(words)]
        moment = float(rng.uniform(0.0, seconds[name]))
        yield interrupted(name, words[name], folder / f"{k}", moment, SIGNALS[k // len(words) % 2])


def interrupted(
    name: str, words: Sequence[object], folder: Path, moment: float, number: int
) -> Interruption:
    """Start a command, send it a signal at a moment, and look at what is left."""
    mark = uuid.uuid4().hex
    process = _start(words, folder, mark)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    if process.poll() is not None:
        process.communicate()
        return Interruption(name, None, 0.0, _left(folder, mark))
    os.killpg(process.pid, number)
    began = time.monotonic()
    try:
        _, said = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Interruption(name, moment, 30.0, ["it did not end"])
    seconds = time.monotonic() - began
    faults = _left(folder, mark)
    if seconds > LIMIT_S:
        faults.append(f"took {seconds:.1f} s to end")
    # Before the first line of the command, signals do what they do in any Python.
    if process.returncode not in (0, 128 + number, 130, -number):
        faults.append(f"exit status {process.returncode}")
    begun = "interrupts.py" in said or not said.rstrip().endswith("KeyboardInterrupt")
    if "Traceback" in said and begun:
        faults.append(said)
    return Interruption(name, moment, seconds, faults)


def _run(words: Sequence[object], folder: Path) -> float:
    """Seconds that a command takes, undisturbed."""
    began = time.monotonic()
    process = _start(words, folder / f"whole-{uuid.uuid4().hex}", "")
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return time.monotonic() - began


def _start(words: Sequence[object], folder: Path, mark: str) -> subprocess.Popen[str]:
    temporary = folder.parent / f"{folder.name}-tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [*JAXPE, *(str(word).replace("{out}", str(folder)) for word in words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, MARK: mark, "TMPDIR": str(temporary)},
        start_new_session=True,
        restore_signals=True,
    )


def _left(folder: Path, mark: str) -> list[str]:
    """What a command left: processes, temporary files, files that are not whole."""
    until = time.monotonic() + LIMIT_S
    while (processes := processes_with(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    faults = [f"process {pid} is left" for pid in processes]
    temporary = folder.parent / f"{folder.name}-tmp"
    faults += [f"{path.name} is left in the temporary folder" for path in temporary.iterdir()]
    if folder.exists() and not [path for path in folder.iterdir() if path.name != ".lock"]:
        faults.append("an empty folder is left")
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    for path in files:
        if path.name.startswith(".part-") or not _is_whole(path):
            faults.append(f"{path.relative_to(folder)} is not whole")
    return faults


def processes_with(mark: str) -> list[int]:
    """Processes that have the mark in their environment."""
    marked = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                marked.append(int(entry.name))
        except OSError:
            continue
    return marked


def _is_whole(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is None
        elif path.suffix == ".html":
            return path.read_text().rstrip().endswith("</html>")
    except (ValueError, zipfile.BadZipFile):
        return False
    return True


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        tried = list(interruptions(Path(place), number=int(sys.argv[1]), seed=0))
    for one in tried:
        print(*one, sep=" | ")
    slowest = max(one.seconds for one in tried)
    print(
        f"{len(tried)} interruptions, {sum(bool(one.faults) for one in tried)} with faults, "
        f"{slowest:.1f} s at most"
    )
