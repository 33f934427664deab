"""Verdicts on published work, each from its experiment's own functions at a size of seconds."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments import rows
from experiments.bisset2026 import encodings_claims
from experiments.cirrincione2026 import table_2_generators
from experiments.kazemnejad2023 import nope_remarks
from experiments.spectral2025 import deposits, spectral_claims, task_models

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_dirichlet_rows_around_three_regimes_have_the_numbers_of_table_2():
    results = json.loads((EXPERIMENTS / "results" / "table_2_generators.json").read_text())
    best = results["families"]["shared, thirds"]["table_2"]["best"]
    regime = np.searchsorted((11, 21), np.arange(table_2_generators.N), side="right")
    found = table_2_generators.judged(
        partial(table_2_generators.shared, best["a"], best["c"]), regime, 24
    )
    assert found["table_2"] < 1  # of the published digits, the farthest in standard deviations


def test_rope_contracts_positive_definite_toeplitz_content_and_not_white():
    found = spectral_claims.rotary_contraction(seeds=8, n=32, dim=32)
    for name in found:
        ratio = found[name]["ratio"]
        if name.startswith("Toeplitz"):
            assert found[name]["hypotheses_met"] == 1
            assert ratio["high"] < 1
        if name.startswith("white content, mean × 0.5"):
            assert ratio["mean"] < 0.8
    white = found["white content, mean × 0"]["ratio"]
    assert white["low"] < 1 < white["high"]


def test_wavelets_at_integers_are_orthonormal_of_order_1_alone():
    """Haar is the discrete Haar basis; the rank of the others shows that no scaling helps."""
    wavelets = encodings_claims.wavelet_rows()
    assert wavelets["1"]["largest_product"] < 1e-12
    assert [row["rank"] < 64 for row in wavelets.values()] == [False, True, True, True, True]
    assert min(wavelets[order]["largest_product"] for order in wavelets if order != "1") > 0.5


def test_logits_of_the_construction_depend_on_the_offset_for_affine_positions_alone():
    functions = nope_remarks.FUNCTIONS.items()
    left = {
        name: nope_remarks.left_by_offsets(nope_remarks.written(p, 32)) for name, p in functions
    }
    assert [name for name, share in left.items() if share < 1e-9] == ["t", "2t - 1"]
    assert all(share < 1e-9 or share > 0.05 for share in left.values())


def test_two_large_entries_bypass_layer_norm():
    bypassed, plain = (nope_remarks.layer_norm(16, large) for large in (1e6, 0.0))
    assert max(bypassed.values()) < 1e-4
    assert min(plain.values()) > 1


@pytest.mark.parametrize("beyond", [False, True])
def test_longer_rows_keep_the_distances_and_move_the_triggers(beyond):
    sizes = task_models.SMALL
    made = deposits.longer_rows(sizes, 4, beyond=beyond, rows=60)
    left, between, _ = sizes.segments
    words = set.intersection(*(set(row[row > 0]) for row in made.ids))
    first, last = (np.flatnonzero(np.isin(made.ids[0], list(words)))[at] for at in (0, -1))
    assert len(words) == 2
    assert made.labels[0] == last - first
    places = np.argmax(np.isin(made.ids, list(words)), axis=1)
    assert places.min() >= (3 * left if beyond else 1)
    assert places.max() <= (4 * left if beyond else left)
    assert made.labels.max() <= between + 1


def test_a_row_is_added_and_the_others_stay(tmp_path):
    path = tmp_path / "grown.json"
    for names, accuracy in (("count", "0"), 0.5), (("distance", "0"), 0.6), (("count", "0"), 0.8):
        rows.add_row(path, ("tasks", *names), {"accuracy": accuracy})
    found = rows.read_rows(path)
    assert rows.row_of(found, ("tasks", "count", "0"))["accuracy"] == 0.8
    assert rows.row_of(found, ("tasks", "distance", "0"))["accuracy"] == 0.6
    assert rows.row_of(found, ("tasks", "none", "0")) is None


@pytest.mark.parametrize("least", [-9, -5, 0])
def test_the_best_rate_is_inside_its_grid(least):
    losses = rows.inside(lambda k: (k - least) ** 2, first=-5)
    assert min(losses, key=losses.get) == least
    assert {least - 1, least + 1} <= losses.keys()


def test_a_seed_is_the_same_alone_and_beside_others():
    several = task_models._keys(0, dataclasses.replace(task_models.QUICK, seeds=3))
    alone = task_models._keys(0, dataclasses.replace(task_models.QUICK, seeds=1, first_seed=2))
    assert (several[2:] == alone).all()
