"""Verdicts on published work, each from its experiment's own functions at a size of seconds."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import jaxpe
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


def test_another_concentration_has_the_sinusoids_of_table_3():
    regime = np.searchsorted((11, 21), np.arange(table_2_generators.N), side="right")
    mean = table_2_generators.judged(partial(table_2_generators.shared, 0.3, 300.0), regime, 6)[
        "mean"
    ]
    np.testing.assert_allclose(mean["sinusoidal_16"], 2.248, atol=0.2)
    np.testing.assert_allclose(mean["share_2"], 0.799, atol=0.02)


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


def test_legendre_polynomials_of_tanh_are_not_orthonormal_over_positions():
    columns = encodings_claims.legendre_columns()
    assert all(of["largest"] > 0.9 for of in columns.values())
    assert columns["4"]["rms"] > 0.4
    assert columns["4"]["last_x"] > 0.999


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


def test_paths_of_one_head_add_content_to_rotary_logits():
    """Deposits: shared paths are ⟨q, k⟩ + ⟨R_i q, R_j k⟩ of the same half of a head."""
    shared = deposits.shared_paths(task_models.SMALL)
    q, k = np.random.default_rng(0).standard_normal((2, 5, 1, 16))
    at = np.arange(5)
    rope = jaxpe.rope(head_dim=8)
    logits = shared.query((), q, at)[:, 0] @ shared.key((), k, at)[:, 0].T
    turned = rope.query((), q[..., :8], at)[:, 0] @ rope.key((), k[..., :8], at)[:, 0].T
    np.testing.assert_allclose(logits, q[:, 0, :8] @ k[:, 0, :8].T + turned, atol=1e-5)


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
    rows.add_row(path, ("tasks", "count", "rope", "seeds", "0"), {"accuracy": 0.5})
    rows.add_row(path, ("tasks", "distance", "rope", "seeds", "0"), {"accuracy": 0.6})
    rows.add_row(path, ("tasks", "count", "rope", "seeds", "1"), {"accuracy": 0.7})
    rows.add_row(path, ("tasks", "count", "rope", "seeds", "0"), {"accuracy": 0.8})
    found = rows.read_rows(path)
    assert list(found) == ["tasks"]
    count = found["tasks"]["count"]["rope"]["seeds"]
    assert {seed: row["accuracy"] for seed, row in count.items()} == {"0": 0.8, "1": 0.7}
    assert rows.row_of(found, ("tasks", "distance", "rope", "seeds", "0"))["accuracy"] == 0.6
    assert rows.row_of(found, ("tasks", "distance", "nope", "seeds", "0")) is None
    assert json.loads(path.read_text())["made_by"].keys() > {"commit", "cpu_seconds", "seconds"}


@pytest.mark.parametrize("earlier", [{}, {"cpu_seconds": 1000, "seconds": 2000}])
def test_the_time_of_a_grown_file_is_that_of_all_runs_or_not_recorded(tmp_path, earlier):
    path = tmp_path / "grown.json"
    path.write_text(json.dumps({"made_by": earlier}))
    for seed in "12":
        rows.add_row(path, ("seeds", seed), {"accuracy": 0.5})
    seconds = json.loads(path.read_text())["made_by"].get("seconds")
    assert 2000 <= seconds < 3000 if earlier else seconds is None


def test_rows_say_what_they_cost():
    seeds = {"0": {"cpu_seconds": 2.0, "drop": [0.5]}, "1": {"cpu_seconds": 3.0}}
    rope = {"rate": {"rate": 0.1, "cpu_seconds": 1.5}, "seeds": seeds}
    tasks = {"count": {"rope": rope | {"together": {"accuracy": {"seeds": [1.0, 1.0]}}}}}
    assert rows.cost(tasks) == {"models": 2, "cpu_seconds": 6.5}


@pytest.mark.parametrize("least", [-9, -5, 0])
def test_the_best_rate_is_inside_its_grid(least):
    losses = rows.inside(lambda k: (k - least) ** 2, first=-5)
    assert min(losses, key=losses.get) == least
    assert {least - 1, least + 1} <= losses.keys()


def test_a_seed_is_the_same_alone_and_beside_others():
    several = task_models._keys(0, dataclasses.replace(task_models.QUICK, seeds=3))
    alone = task_models._keys(0, dataclasses.replace(task_models.QUICK, seeds=1, first_seed=2))
    assert (several[2:] == alone).all()
