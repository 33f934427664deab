"""Write `neural_tangents.npz`: kernels and predictions of neural-tangents for three networks.

It needs neural-tangents and a JAX that it works with; the tests need neither. The networks are
those of `ntk_networks.py`, in float32, which is what neural-tangents computes in by default. Its
third implementation does not run with JAX 0.5.3.
"""

import numpy as np

from tools.parity.goldens import HERE, write_arrays
from tools.parity.ntk_networks import build

AXES = {"whole": ((), ()), "traced": ((-1,), ()), "diagonal": ((), (1,)), "paired": ((-1,), (0,))}
TRAIN, TEST = 5, 3
TIMES = np.array([0.0, 1.0, 30.0, 3000.0], np.float32)
RATE, RIDGE, MOMENTUM = 0.5, 0.05, 0.9


def kernels(out: dict, name: str) -> None:
    """In both implementations, of training inputs with themselves and with test inputs."""
    import neural_tangents as nt

    f, params, (train, test) = build(name, batches=(TRAIN, TEST))
    out |= {f"{name}_train": train, f"{name}_test": test}
    out |= {f"{name}_params_{key}": value for key, value in params.items()}
    for case, (trace_axes, diagonal_axes) in AXES.items():
        for implementation in (1, 2):
            kernel = nt.empirical_ntk_fn(
                f, trace_axes, diagonal_axes, vmap_axes=0, implementation=implementation
            )
            where = f"{name}_{case}_{implementation}"
            out[f"{where}_same"] = kernel(train, None, params)
            if case != "paired":
                out[f"{where}_across"] = kernel(test, train, params)
    out |= {f"{name}_f_train": f(params, train), f"{name}_f_test": f(params, test)}


def predictions(out: dict, name: str, case: str) -> None:
    """Of gradient descent on the mean squared error from the outputs of the network."""
    from neural_tangents._src import predict

    # On CPUs it asks SciPy for the eigenvalue by an argument that SciPy has dropped.
    predict._is_on_cpu = lambda _: False
    K, L = (out[f"{name}_{case}_1_{which}"] for which in ("same", "across"))
    f, g = out[f"{name}_f_train"], out[f"{name}_f_test"]
    y = np.random.default_rng(7).standard_normal(f.shape).astype(np.float32)
    out["targets"] = y
    trace_axes = AXES[case][0]
    for label, ridge in (("free", 0.0), ("ridge", RIDGE)):
        run = predict.gradient_descent_mse(
            K, y, RATE, ridge, diag_reg_absolute_scale=True, trace_axes=trace_axes
        )
        # With a ridge, training outputs are those of a test set that is the training set.
        for end, times in (("finite", TIMES), ("end", None)):
            where = f"{name}_{case}_{label}_{end}"
            out[f"{where}_test"] = run(times, f, g, L)[1]
            out[f"{where}_train"] = run(times, f, f, K)[1]
    for momentum in (0.0, MOMENTUM):
        rate = predict.max_learning_rate(K, y.size, momentum)
        out[f"{name}_{case}_rate_{momentum}"] = rate


def main() -> None:
    out: dict = {}
    for name in ("mlp", "cnn", "transformer"):
        kernels(out, name)
        predictions(out, name, "whole")
        predictions(out, name, "traced")
    out |= {"times": TIMES, "learning_rate": RATE, "ridge": RIDGE, "momentum": MOMENTUM}
    write_arrays(HERE / "neural_tangents.npz", out, "neural-tangents", "jax")


if __name__ == "__main__":
    main()
