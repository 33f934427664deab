"""Verdicts on published work, each from its experiment's own functions at a size of seconds."""

import importlib
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


@pytest.fixture
def experiment(monkeypatch):
    """An experiment's module by name."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    known = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(EXPERIMENTS) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


def test_dirichlet_rows_around_three_regimes_have_the_numbers_of_table_2(experiment):
    script = experiment("table_2_generators")
    regime = np.searchsorted((11, 21), np.arange(script.N), side="right")
    found = script.judged(partial(script.shared, 0.08, 60.0), regime, 6)
    published, mean, sd = script.TABLES["table_2"], found["mean"], found["sd"]
    assert max(abs(mean[name] - value) / sd[name] for name, value in published.items()) < 2.5


def test_another_concentration_has_the_sinusoids_of_table_3(experiment):
    script = experiment("table_2_generators")
    regime = np.searchsorted((11, 21), np.arange(script.N), side="right")
    mean = script.judged(partial(script.shared, 0.3, 300.0), regime, 6)["mean"]
    np.testing.assert_allclose(mean["sinusoidal_16"], 2.248, atol=0.2)
    np.testing.assert_allclose(mean["share_2"], 0.799, atol=0.02)


def test_rope_contracts_positive_definite_toeplitz_content_and_not_white(experiment):
    found = experiment("spectral_claims").rotary_contraction(seeds=8, n=32, dim=32)
    for name in found:
        ratio = found[name]["ratio"]
        if name.startswith("Toeplitz"):
            assert found[name]["hypotheses_met"] == 1
            assert ratio["high"] < 1
        if name.startswith("white content, mean × 0.5"):
            assert ratio["mean"] < 0.8
    white = found["white content, mean × 0"]["ratio"]
    assert white["low"] < 1 < white["high"]


def test_the_backward_pass_of_the_rope_listing_is_not_that_of_its_forward_pass(experiment):
    found = experiment("encodings_claims").backward_of_the_code()
    assert found["relative_error"] > 1
    assert found["relative_error_split_in_halves"] > 1
    assert found["relative_error_of_halves_interleaved"] < 1e-12
    assert not found["shape_of_the_docstring_broadcasts"]


def test_wavelets_and_legendre_polynomials_at_integers_are_not_orthonormal(experiment):
    script = experiment("encodings_claims")
    rows = script.wavelet_rows()
    np.testing.assert_allclose(rows["largest_product"], 0.948, atol=1e-3)
    assert rows["rank"] == 55
    columns = script.legendre_columns()
    assert all(of["largest"] > 0.9 for of in columns.values())
    assert columns["4"]["rms"] > 0.4
    assert columns["4"]["last_x"] > 0.999


def test_equal_distributions_have_unequal_forcings(experiment):
    """Remark 19: places of one distribution, of which two hold copies."""
    script = experiment("remark_19_equal_marginals")
    counts, _ = np.unique(script.sequences()[0][:, 0], return_counts=True)
    assert len(counts) == script.TOKENS
    found = script.forcing(0, 0.2)
    assert found["copied_and_copied"] < 1e-5
    assert found["copied_and_alone"] > 0.1
