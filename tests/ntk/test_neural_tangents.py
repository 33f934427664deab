"""Against neural-tangents, from the file that `make_neural_tangents.py` writes."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe.ntk import empirical_ntk, max_learning_rate, predict_mse
from tests.ntk.networks import QUICK
from tools.parity.make_neural_tangents import AXES
from tools.parity.ntk_networks import APPLY

PEER = dict(np.load(Path(__file__).parent.parent / "parity" / "neural_tangents.npz"))
NAMES = ("mlp", "cnn", "transformer")


def close(ours, theirs, *, rtol):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=rtol * np.abs(theirs).max())


def params_of(name):
    start = f"{name}_params_"
    return {key.removeprefix(start): PEER[key] for key in PEER if key.startswith(start)}


@pytest.mark.parametrize("name", NAMES)
def test_kernels(name):
    """All axes of one network, and the whole kernel of the others."""

    @partial(jax.jit, compiler_options=QUICK)
    def run(params, train, test):
        found = {}
        for case, (trace, diagonal) in AXES.items():
            if name != "mlp" and case != "whole":
                continue
            options = {"trace_axes": trace, "diagonal_axes": diagonal}
            found[case, "same"] = empirical_ntk(APPLY[name], train, None, params, **options)
            if case != "paired":
                across = empirical_ntk(APPLY[name], test, train, params, **options)
                found[case, "across"] = across
        return found

    kernels = run(params_of(name), PEER[f"{name}_train"], PEER[f"{name}_test"])
    for (case, which), kernel in kernels.items():
        for implementation in (1, 2):
            close(kernel, PEER[f"{name}_{case}_{implementation}_{which}"], rtol=3e-6)


@partial(jax.jit, static_argnames=("learning_rate", "ridge", "trace_axes"))
def predicted(K, L, f, g, *, ridge, **options):
    predict = predict_mse(K, PEER["targets"], ridge=ridge, **options)
    return {"finite": predict(PEER["times"], f, g, L), "end": predict(None, f, g, L)}


@pytest.mark.parametrize("case", ["whole", "traced"])
def test_predictions_and_largest_learning_rates(case):
    options = {"learning_rate": float(PEER["learning_rate"]), "trace_axes": AXES[case][0]}
    for name in NAMES:
        K, L = (PEER[f"{name}_{case}_1_{which}"] for which in ("same", "across"))
        f, g = PEER[f"{name}_f_train"], PEER[f"{name}_f_test"]
        for label, ridge in (("free", 0.0), ("ridge", float(PEER["ridge"]))):
            for end, ours in predicted(K, L, f, g, ridge=ridge, **options).items():
                for which in ("train", "test"):
                    theirs = PEER[f"{name}_{case}_{label}_{end}_{which}"]
                    close(getattr(ours, which), theirs, rtol=1e-4)
        for momentum in (0.0, float(PEER["momentum"])):
            ours = max_learning_rate(K, y_train_size=PEER["targets"].size, momentum=momentum)
            np.testing.assert_allclose(ours, PEER[f"{name}_{case}_rate_{momentum}"], rtol=1e-5)
