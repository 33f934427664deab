"""Jobs that write, and what may happen to them: kills, full disks, a second process.

`python -m tests.hardening.jobs JOB EVENT FOLDER [SEED]` prints the faults, as JSON. Jobs run in
processes that are forked from one that has imported the library and has not started JAX. A moment
is a number of events in the folder of the job: files that are opened, renamed or removed there.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import shlex
import signal
import sys
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.films import make_films
from tests.hardening.damage import NOBODY

Words = Sequence[object]
KILLS = 10
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")
TRAIN = (
    "--length", 4, "--model.dim", 4, "--model.layers", 1, "--model.heads", 1, "--batch-size", 8,
    "--checkpoint-every", 2, "--evaluate-every", 4, "--encoding", "none",
)  # fmt: skip


class Job(NamedTuple):
    """A command that writes into a folder.

    - `first`, `words`: the command, given its folder: what is there before, and the job itself.
    - `names`: files that hold its result, equal to the byte where nothing happened. Where the
      first one is there, the others are.
    - `goes_on`: whether it goes on where it was killed, and does not begin again.
    """

    first: Callable[[Path], Words]
    words: Callable[[Path], Words]
    names: tuple[str, ...]
    goes_on: bool = True


class Ended(NamedTuple):
    """How a process ended: exit status, minus the signal that killed it, and standard error."""

    code: int
    said: str


def _count(*names: str) -> Callable[[Path], Words]:
    options = ("--tokenizer", "bytes", "--length", 6, "--folds", 4, "--nulls", 2)
    return lambda out: ("count", *(out.parent / name for name in names), *options, "--out", out)


def _rope(factor: float) -> Callable[[Path], Words]:
    scaling = {"rope_type": "linear", "factor": factor}
    words = ("rope", "--head-dim", 16, "--context", 64, "--scaling", json.dumps(scaling))
    return lambda out: (*words, "--out", out)


def _train(steps: int) -> Callable[[Path], Words]:
    def words(out: Path) -> Words:
        if (out / "config.json").exists():
            return ("train", "--resume", "--steps", steps, "--out", out)
        source = out.parent / "films.tsv"
        options = ("--probe-at", "--decay", "constant", "--warmup", 0, "--steps", steps)
        return ("train", source, *TRAIN, *options, "--out", out)

    return words


JOBS = {
    "count": Job(_count("a.txt"), _count("a.txt", "b.txt", "c.txt"), ("counts.npz",)),
    "rope": Job(
        _rope(2.0), _rope(4.0), ("rope.html", "rope.json", "rope.md", "findings.csv"), False
    ),
    "train": Job(_train(4), _train(8), ("log.jsonl", "config.json", "vocabulary.json")),
}


def make_sources(folder: Path) -> None:
    make_films(folder / "films.tsv")
    for name in "abc":
        (folder / f"{name}.txt").write_text("\n".join(f"to be {name} {n}" for n in range(60)))


# Processes.


def started(
    words: Words,
    *,
    out: Path,
    moment: int = 0,
    number: int = 0,
    before: Callable[[], object] = lambda: None,
) -> int:
    """Start a command in a fork, which gets a signal at a moment, and call `before` in it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for target, name in ((0, os.devnull), (1, os.devnull), (2, _said(out))):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), target)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        events = [0]
        _watch(out, events, moment, number)
        before()
        code = _run(words)
        if not moment:
            about = {"events": events[0], "modules": [*sys.modules]}
            out.with_suffix(".about").write_text(json.dumps(about))
    finally:
        os._exit(code)


def _said(out: Path) -> Path:
    return out.with_suffix(".said")


def _watch(out: Path, events: list[int], moment: int, number: int) -> None:
    """Count events in a folder, and send the signal at its moment, which lasts until the end."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not isinstance(args[0], str | os.PathLike):
            return
        if os.fspath(args[0]).startswith(f"{out}{os.sep}"):
            events[0] += 1
            if events[0] == moment:
                os.kill(os.getpid(), number)
                if number != signal.SIGSTOP:
                    time.sleep(60)

    sys.addaudithook(hook)


def _run(words: Words) -> int:
    from jaxpe.cli import main as cli

    sys.argv = ["jaxpe", *map(str, words)]
    try:
        cli.main()
        sys.stdout.flush()
    except SystemExit as stop:
        return int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
    return 0


def ended(pid: int, out: Path, limit_s: float = 120) -> Ended:
    """Wait for the end of a process; one that takes too long is killed."""
    until = time.monotonic() + limit_s
    found, status = os.waitpid(pid, os.WNOHANG)
    while not found:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        found, status = os.waitpid(pid, os.WNOHANG)
    said = _said(out).read_text(errors="replace")
    _said(out).unlink()
    return Ended(os.waitstatus_to_exitcode(status), said)


def run(words: Words, out: Path, **options: Any) -> Ended:
    return ended(started(words, out=out, **options), out)


def finished(words: Words, out: Path) -> int:
    """Run a command that nothing happens to; returns its number of events."""
    code, said = run(words, out)
    if code:
        raise RuntimeError(f"{words} ended with {code}: {said}")
    about = json.loads(out.with_suffix(".about").read_text())
    for module in about["modules"]:  # the next ones have them from the start
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    return about["events"]


# What is left.


def faults_of(end: Ended, codes: Sequence[int], out: Path, *, refused: bool = False) -> list[str]:
    """What is wrong with an end: its exit status, a traceback, no line that names the folder."""
    faults = [] if end.code in codes else [f"exit status {end.code}: {end.said}"]
    if "Traceback" in end.said:
        faults.append(end.said)
    told = [line for line in end.said.splitlines() if line.startswith("jaxpe: ")]
    told = [line for line in told if "nothing is cached" not in line]  # as another user
    if refused and not (len(told) == 1 and str(out) in told[0]):
        faults.append(f"no line that names the folder: {end.said!r}")
    return faults


def broken_files(out: Path) -> set[Path]:
    """Files that are not whole, and those that were being written."""
    files = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else []
    inside = [path for path in files if "checkpoints" not in path.parts]
    return {path for path in inside if path.name.startswith(".part-") or not _is_whole(path)}


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


def contents(job: Job, out: Path) -> dict[str, bytes]:
    """The result, without the folders that it names."""
    found = {name: (out / name).read_bytes() for name in job.names if (out / name).exists()}
    for name in found:
        for path in (out, out.parent):
            found[name] = found[name].replace(os.fsencode(path), b"PATH")
    return found


def compared(job: Job, out: Path, whole: Path) -> list[str]:
    ours, theirs = contents(job, out), contents(job, whole)
    return [f"{name} differs" for name in job.names if ours.get(name) != theirs[name]]


# Events.


def killed(job: Job, folder: Path, whole: Path, events: int, seed: int) -> list[str]:
    """Kills and interrupts at ten moments, after each of which the job goes on to the same end.

    Each is at a random moment of the events of a whole job, or of a third of them where it goes
    on. A run that ends before it is compared, and the next one begins in another folder.
    """
    rng, faults = np.random.default_rng(seed), []
    numbers = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
    out, words, hits, runs = folder / "killed-0", None, 0, 0
    while hits < KILLS and runs < 3 * KILLS and not faults:
        runs += 1
        number = numbers[hits % 4]
        moment = int(rng.integers(1, events // (3 if job.goes_on else 1) + 1))
        before = broken_files(out)
        end = run(words or job.words(out), out, moment=moment, number=number)
        words = None
        if end.code == 0:
            faults += compared(job, out, whole)
            out = folder / f"killed-{runs}"
            continue
        hits += 1
        is_kill = number == signal.SIGKILL
        faults += faults_of(end, [-number if is_kill else 128 + number], out)
        broken = broken_files(out) - before
        if is_kill:  # leaves the files that it was writing, which the next run writes again
            broken = {path for path in broken if not path.name.startswith(".part-")}
        faults += [f"{path} is not whole" for path in broken]
        if (out / job.names[0]).exists():
            faults += [f"{name} is not there" for name in job.names if not (out / name).exists()]
        if not is_kill and "To go on: " in end.said:
            words = shlex.split(end.said.strip().splitlines()[-1].partition(": ")[2])[1:]
        faults = [f"signal {number} at {moment} of {events}: {fault}" for fault in faults]
    finished(job.words(out), out)
    return faults + compared(job, out, whole) + ([] if hits == KILLS else [f"{hits} kills"])


def disk_full(job: Job, folder: Path, whole: Path, events: int, seed: int) -> list[str]:
    """No file grows beyond a size: what was there before stays, and the job goes on with room."""
    out, faults = folder / "out", []
    finished(job.first(out), out)
    earlier = contents(job, out)
    largest = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    for size in (largest // 2, 1000):

        def limit(size: int = size) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        end = run(job.words(out), out, before=limit)
        faults += faults_of(end, [2], out, refused=True)
        faults += [f"{path} is not whole" for path in broken_files(out)]
        for name in [] if name_of(job) == "train" else earlier:
            if contents(job, out).get(name) != earlier[name]:
                faults.append(f"{name} of before is lost")
    finished(job.words(out), out)
    return faults + compared(job, out, whole)


def name_of(job: Job) -> str:
    return next(name for name, one in JOBS.items() if one is job)


def refused(job: Job, folder: Path, whole: Path, events: int, seed: int) -> list[str]:
    """A file in the place of the folder, and a folder of another user."""
    out, faults = folder / "out", []
    out.write_text("mine")
    faults += faults_of(run(job.words(out), out), [2], out, refused=True)
    if out.read_text() != "mine":
        faults.append("the file was changed")
    closed = folder / "closed"
    closed.mkdir()
    for source in folder.glob("*.t*"):
        (closed / source.name).write_bytes(source.read_bytes())
    for place in (folder, folder.parent):
        place.chmod(0o755)
    closed.chmod(0o555)
    out = closed / "out"

    def drop() -> None:
        if os.geteuid() == 0:
            os.seteuid(NOBODY)

    return faults + faults_of(run(job.words(out), out, before=drop), [2], out, refused=True)


def second_process(job: Job, folder: Path, whole: Path, events: int, seed: int) -> list[str]:
    """While one writes, another is refused; the first ends as if alone."""
    out = folder / "out"
    first = started(job.words(out), out=out, moment=events // 3, number=signal.SIGSTOP)
    _, status = os.waitpid(first, os.WUNTRACED)
    said = _said(out).rename(folder / "first")
    faults = [] if os.WIFSTOPPED(status) else ["it ended before its moment"]
    faults += faults_of(run(job.words(out), out), [2], out, refused=True)
    os.kill(first, signal.SIGCONT)
    said.rename(_said(out))
    return faults + faults_of(ended(first, out), [0], out) + compared(job, out, whole)


EVENTS: dict[str, Callable[[Job, Path, Path, int, int], list[str]]] = {
    event.__name__: event for event in (killed, disk_full, refused, second_process)
}


def main(jobs: Sequence[str], events: Sequence[str], folder: Path, seed: int) -> dict[str, Any]:
    """Faults of every event of every job."""
    warnings.filterwarnings("ignore", message=r".*os\.fork\(\) was called")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
    os.environ["JAXPE_CACHE_DIR"] = str(folder / "cache")
    found = {}
    gc.disable()  # of processes of seconds
    for job in jobs:
        whole = folder / job / "whole"
        for place in (whole.parent, *(folder / f"{job}-{event}" for event in events)):
            place.mkdir()
            make_sources(place)
        number = finished(JOBS[job].words(whole), whole)
        for event in events:
            place = folder / f"{job}-{event}"
            found[f"{job}, {event}"] = EVENTS[event](JOBS[job], place, whole, number, seed)
    return found


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    folder = Path(words[0])
    print(json.dumps(main([name], list(EVENTS), folder, int(words[1]))))
