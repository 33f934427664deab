"""Against neural-tangents, from the file that `make_neural_tangents.py` writes."""

from pathlib import Path

import jax
import numpy as np
import pytest

from jaxpe.ntk import empirical_ntk, max_learning_rate, predict_mse
from tests.ntk.networks import NAMES, QUICK
from tools.parity.make_neural_tangents import AXES
from tools.parity.ntk_networks import APPLY

PEER = dict(np.load(Path(__file__).parent.parent / "parity" / "neural_tangents.npz"))


def close(ours, theirs, *, rtol):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=rtol * np.abs(theirs).max())


def params_of(name):
    start = f"{name}_params_"
    return {key.removeprefix(start): PEER[key] for key in PEER if key.startswith(start)}


@pytest.mark.parametrize("name", NAMES)
def test_kernels(name):
    def run(params, train, test):
        same, across = {}, {}
        for case, (trace, diagonal) in AXES.items():
            options = {"trace_axes": trace, "diagonal_axes": diagonal}
            same[case] = empirical_ntk(APPLY[name], train, None, params, **options)
            if case != "paired":
                across[case] = empirical_ntk(APPLY[name], test, train, params, **options)
        return {"same": same, "across": across}

    ours = jax.jit(run, compiler_options=QUICK)(
        params_of(name), PEER[f"{name}_train"], PEER[f"{name}_test"]
    )
    for which, kernels in ours.items():
        for case, kernel in kernels.items():
            for implementation in (1, 2):
                close(kernel, PEER[f"{name}_{case}_{implementation}_{which}"], rtol=3e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["whole", "traced"])
@pytest.mark.parametrize("label", ["free", "ridge"])
def test_predictions(name, case, label):
    K, L = (PEER[f"{name}_{case}_1_{which}"] for which in ("same", "across"))
    f, g, y = PEER[f"{name}_f_train"], PEER[f"{name}_f_test"], PEER["targets"]
    options = {"learning_rate": float(PEER["learning_rate"]), "trace_axes": AXES[case][0]}
    ridge = float(PEER["ridge"]) if label == "ridge" else 0.0
    predict = jax.jit(predict_mse(K, y, ridge=ridge, **options))
    for end, times in (("finite", PEER["times"]), ("end", None)):
        ours = predict(times, f, g, L)
        for which, outputs in (("train", ours.train), ("test", ours.test)):
            close(outputs, PEER[f"{name}_{case}_{label}_{end}_{which}"], rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["whole", "traced"])
def test_largest_learning_rates(name, case):
    size = PEER["targets"].size
    for momentum in (0.0, float(PEER["momentum"])):
        ours = max_learning_rate(
            PEER[f"{name}_{case}_1_same"], y_train_size=size, momentum=momentum
        )
        np.testing.assert_allclose(ours, PEER[f"{name}_{case}_rate_{momentum}"], rtol=1e-5)
