"""A few hundred hostile calls of array functions; `python -m tests.hardening.fuzz` makes more."""

import numpy as np
import pytest

import jaxpe
from tests.cases import CASES
from tests.hardening import fuzz

CASES_A_SEED = 40


@pytest.mark.parametrize("seed", range(3))
def test_hostile_arrays_are_answered(seed):
    outcomes = fuzz.fuzz(seed, CASES_A_SEED)
    assert [outcome for outcome in outcomes if outcome.answer == "wrong"] == []
    answers = fuzz.summary(outcomes)
    assert answers["number"] > 0
    assert answers["refused"] > 0


def test_the_same_seed_draws_the_same():
    names = ("diagonal_means", "as_points")
    first, again = (fuzz.fuzz(7, 6, names=names) for _ in range(2))
    assert first == again


def test_what_is_wrong_is_told(monkeypatch):
    """An error of JAX, a NaN that nobody speaks of, and one that the input had."""

    def call(x):
        return x.reshape(5) if x.ndim == 1 else x - np.inf + np.inf

    args = (np.ones(3),), (np.ones((2, 2)),), (np.full((2, 2), np.nan),)
    answers = []
    for (x,) in args:
        target = fuzz.Target(call, lambda rng, x=x: (x,), fixed=True)
        monkeypatch.setitem(fuzz.TARGETS, "call", target)
        monkeypatch.setattr(fuzz, "_spoiled", lambda args, *_: (args, ""))
        answers += [outcome.answer for outcome in fuzz.fuzz(0, 1, names=["call"])]
    assert answers == ["wrong", "wrong", "documented"]


def test_every_public_function_of_spectra_and_kernels_is_tried():
    options = {"solve_flow"}  # of sizes, or of functions alone
    names = {
        name
        for package in (jaxpe.spectral, jaxpe.ntk)
        for name in dir(package)
        if name[0].islower() and callable(getattr(package, name)) and name not in CASES
    }
    assert {n for n in names if not any(t.startswith(n) for t in fuzz.TARGETS)} == options
