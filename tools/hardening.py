"""Tries more of the matrix of `tests/hardening` than its tests do: by hand, before a release.

    python -m tools.hardening --seed 1 --attempts 2000
    python -m tools.hardening --seed 1 --attempts 0 --jobs

Each attempt is in a process of its own, which may not take longer than a minute or more than 2 GB.
It prints every fault and how many attempts had which answer, and ends with 1 if there was a fault.
"""

import argparse
import os
import pickle
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.hardening import jobs, matrix
from tests.hardening.surfaces import SURFACES

LIMIT_S, MOST_BYTES = 60, 2**31


def forked(call, *arguments: Any) -> tuple[str, Any]:
    """Result of a function in a fork, or why there is none: "fault", "crash", "slow" or "large"."""
    with tempfile.TemporaryFile() as file:  # a pipe would be full before a large result
        pid = os.fork()
        if pid == 0:
            try:
                result = "", call(*arguments)
            except matrix.PromiseError as error:
                result = "fault", str(error)
            except BaseException:
                result = "crash", traceback.format_exc()[-600:]
            file.write(pickle.dumps(result))
            file.flush()
            os._exit(0)
        until, ended = time.monotonic() + LIMIT_S, 0
        while not ended:
            ended, _, usage = os.wait4(pid, os.WNOHANG)
            if not ended and time.monotonic() > until:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                return "slow", None
            time.sleep(0.002)
        file.seek(0)
        content = file.read()
    if usage.ru_maxrss * 1024 > MOST_BYTES:
        return "large", f"{usage.ru_maxrss / 1e6:.1f} GB"
    return pickle.loads(content) if content else ("crash", "the process died")


def expected_of(surface: str, whole: Path) -> Any:
    """Make the whole files, and read them."""
    SURFACES[surface].make(whole)
    return SURFACES[surface].read(whole, matrix.files_of(whole, SURFACES[surface].files)[0])


def try_matrix(seed: int, number: int, folder: Path) -> Counter[str]:
    """Answers of so many attempts, by surface; prints the faults."""
    answers: Counter[str] = Counter()
    expected: dict[str, Any] = {}
    for index, cell in enumerate(matrix.attempts(seed, number)):
        whole = folder / cell.surface
        if cell.surface not in expected:
            whole.mkdir()
            problem, expected[cell.surface] = forked(expected_of, cell.surface, whole)
            if problem:
                raise RuntimeError(f"{cell.surface}: {problem}, {expected[cell.surface]}")
        work = folder / f"work-{index}"
        problem, answer = forked(matrix.attempt, cell, whole, work, expected[cell.surface])
        answers[problem or answer] += 1
        if problem:
            print(problem, cell, answer, flush=True)
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of all that is drawn")
    parser.add_argument("--attempts", type=int, default=1500, help="damaged files to try")
    parser.add_argument("--jobs", action="store_true", help="also kill and disturb every job")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=r".*os\.fork\(\) was called")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        answers = try_matrix(options.seed, options.attempts, folder)
        faults: dict[str, list[str]] = {}
        if options.jobs:
            faults = jobs.main(list(jobs.JOBS), list(jobs.EVENTS), folder, options.seed)
    for name, found in faults.items():
        for fault in found:
            print(f"{name}: {fault}")
    print(dict(answers))
    wrong = sum(answers[name] for name in ("fault", "crash", "slow", "large"))
    return int(wrong > 0 or any(faults.values()))


if __name__ == "__main__":
    sys.exit(main())
