"""The networks of the comparison with peers, in float64, and the kernel as it is defined."""

import jax
import jax.numpy as jnp
import numpy as np

from tools.parity.ntk_networks import build

# Most of the time goes into compilation.
QUICK = {"xla_backend_optimization_level": 0}
NAMES = ("mlp", "cnn", "transformer")


def network(name, *, batches=(5,), dtype=jnp.float64, seed=0):
    """`(apply, params, inputs)` with floats of the dtype."""
    f, params, inputs = build(name, batches=batches, seed=seed)

    def cast(a):
        return jnp.asarray(a, dtype if a.dtype.kind == "f" else a.dtype)

    return f, jax.tree.map(cast, params), [cast(x) for x in inputs]


def dense_kernel(f, x1, x2, params, *, trace_axes=(), diagonal_axes=()):
    """Jacobians by `jacrev` of the whole batch, flattened, multiplied, and reduced with NumPy."""
    J1 = _jacobian(f, x1, params)
    J2 = J1 if x2 is x1 else _jacobian(f, x2, params)
    whole = np.tensordot(J1, J2, ([-1], [-1]))  # [n1, *outputs, n2, *outputs]
    ndim = whole.ndim // 2
    whole = whole.transpose([i + j * ndim for i in range(ndim) for j in range(2)])
    return reduced(whole, trace_axes=trace_axes, diagonal_axes=diagonal_axes)


def reduced(whole, *, trace_axes=(), diagonal_axes=()):
    """A kernel with all axes, each twice, traced and without its off-diagonal, by NumPy."""
    ndim = whole.ndim // 2
    letters = "abcdefgh"[:ndim]
    once = {a % ndim for a in (*trace_axes, *diagonal_axes)}
    pairs = [c + (c if i in once else c.upper()) for i, c in enumerate(letters)]
    traced = {a % ndim for a in trace_axes}
    out = "".join(
        pair[:1] if i in once else pair for i, pair in enumerate(pairs) if i not in traced
    )
    size = np.prod([whole.shape[2 * i] for i in traced])
    return np.einsum(f"{''.join(pairs)}->{out}", whole) / size


def _jacobian(f, x, params):
    leaves = jax.tree.leaves(jax.jit(jax.jacrev(f), compiler_options=QUICK)(params, x))
    shape = jax.eval_shape(f, params, x).shape
    return np.concatenate([np.asarray(a).reshape(*shape, -1) for a in leaves], axis=-1)
