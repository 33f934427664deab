"""The judge of hostile input tells a fault from an answer."""

import subprocess
import sys
from pathlib import Path

# Attempts are forked, which a process with threads of JAX should not be.
SCRIPT = """
import os, signal, sys, time
from jaxpe._core.errors import InputError
from tests.hardening.attempts import Attempt, outcome

def refuse(work):
    raise InputError("length is 0; pass at least 1")

def refuse_in_two_lines(work):
    raise InputError("length is 0\\npass at least 1")

def fail(work):
    raise KeyError("length")

def give_another(work):
    assert 1 + 1 == 3

def end(code):
    return lambda work: sys.exit(code)

def die(work):
    os.kill(os.getpid(), signal.SIGSEGV)

def take_memory(work):
    len(b"x" * (2**31 + 2**28))

cases = {
    "right": [(lambda work: (work / "made").touch(), False)],
    "answered": [(refuse, False), (refuse, True)],
    "wrong": [
        (lambda work: None, True), (refuse_in_two_lines, True), (fail, False),
        (give_another, False), (end(2), False), (end(1), False), (die, False), (take_memory, False),
    ],
    "slow": [(lambda work: time.sleep(60), False)],
}
for verdict, tried in cases.items():
    for call, refused in tried:
        limit_s = 1 if verdict == "slow" else 60
        found = outcome(Attempt("family", "about", call, refused, limit_s))
        assert found.verdict == verdict, (verdict, call, found)
        print(found.verdict)
"""


def test_verdicts():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 12
