"""The kernel α and the forcing b of the gradient flow on positions, for any model and loss.

A model is `f(P, example) -> outputs`, a loss `loss(outputs, example) -> scalar`, and P `[n, d]`
holds the position vectors. `examples` is a pytree of arrays `[examples, ...]`; the expected loss is
the mean over them. Programs are compiled once for the same functions.

Arrays that f closes over are constants of the program. jaxlib 0.10.2 computes wrong derivatives of
loops over constants on CPUs, so pass a model's weights as arguments: `jax.jit(lambda weights:
positional_ntk(partial(model, weights), loss, P, examples))(weights)`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Shaped

from jaxpe._core.arrays import ArrayLike
from jaxpe.geometry.checks import check_size
from jaxpe.ntk.examples import expectation

Model = Callable[[Array, Any], Array]
Loss = Callable[[Array, Any], Array]
Blocks = Literal["trace", "full"]
Positions = Shaped[ArrayLike, "..."]  # [n, d]; other arrays raise an error that names the shape


@partial(jax.jit, static_argnames=("f", "loss", "blocks", "batch_size"))
def positional_ntk(
    f: Model,
    loss: Loss,
    P: Positions,
    examples: Any,
    *,
    blocks: Blocks = "trace",
    batch_size: int = 8,
) -> Float[Array, "n n"] | Float[Array, "n d n d"]:
    """Positional NTK: the kernel α of gradient flow on positions, Eq. (6) of Cirrincione (2026).

    Linearising the model, f(P + Δ) ≈ f(P) + JΔ, makes the expected loss quadratic in Δ, with the
    Hessian α = E[Jᵀ (∂²loss/∂outputs²) J], `[n, d, n, d]` (the generalised Gauss–Newton matrix;
    JᵀJ for ½‖f − y‖²). It is symmetric, and positive semi-definite where the loss is convex in the
    outputs. The paper's n × n matrix is its block trace, α_ij = (1/d) Σ_c α_(ic)(jc): the paper's
    flow replaces the whole by α ⊗ I_d.

    Each example costs one backward pass for each output. For thousands of outputs use
    `positional_ntk_product`, or `positional_fisher` for cross-entropy.

    Args:
        f, loss, P, examples: functions and arrays as in this module's docstring; f is linearised at
            P.
        blocks: "trace" for the n × n matrix, "full" for all of α.
        batch_size: examples at a time; it bounds memory and changes nothing else.

    Raises:
        ValueError: P that is no matrix of floats, a loss that is not scalar, examples of different
            numbers or without an axis of examples, unknown blocks, batch_size below 1.

    >>> f = lambda P, x: x @ P
    >>> loss = lambda y, x: jnp.sum(y**2) / 2
    >>> positional_ntk(f, loss, jnp.zeros((2, 3)), jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[2.0, 0.0], [0.0, 8.0]]
    """
    P, examples = _checked_inputs(f, loss, P, examples)
    if blocks not in get_args(Blocks):
        raise ValueError(f"blocks is {blocks!r}, not one of {get_args(Blocks)}")
    n, d = P.shape
    subscripts = {"trace": "oic,ojc->ij", "full": "oic,oje->icje"}[blocks]

    def kernel(example: Any) -> Array:
        outputs = f(P, example)
        J = jax.jacrev(f)(P, example).reshape(outputs.size, n, d)
        H = jax.hessian(loss)(outputs, example).reshape(outputs.size, outputs.size)
        HJ = jnp.einsum("op,pic->oic", H, J, precision=lax.Precision.HIGHEST)
        return jnp.einsum(subscripts, J, HJ, precision=lax.Precision.HIGHEST)

    alpha = expectation(kernel, examples, batch_size)
    return alpha / d if blocks == "trace" else alpha


def positional_ntk_product(
    f: Model, loss: Loss, P: Positions, examples: Any, *, batch_size: int = 8
) -> Callable[[Float[ArrayLike, "n d"]], Float[Array, "n d"]]:
    """Products `V -> αV` without α: one forward and one backward pass of each example.

    Args:
        f, loss, P, examples, batch_size: arguments of `positional_ntk`.

    >>> f = lambda P, x: x @ P
    >>> loss = lambda y, x: jnp.sum(y**2) / 2
    >>> product = positional_ntk_product(f, loss, jnp.zeros((2, 1)), jnp.array([[2.0, 1.0]]))
    >>> product(jnp.array([[1.0], [0.0]])).ravel().tolist()
    [4.0, 2.0]
    """
    P, examples = _checked_inputs(f, loss, P, examples)

    def product(V: Float[ArrayLike, "..."]) -> Float[Array, "n d"]:
        if jnp.shape(V) != P.shape:
            raise ValueError(f"V has shape {jnp.shape(V)}, but P has {P.shape}: pass one like P")
        return _product(P, examples, jnp.asarray(V), f=f, loss=loss, batch_size=batch_size)

    return product


@partial(jax.jit, static_argnames=("f", "loss", "batch_size"))
def _product(P: Array, examples: Any, V: Array, *, f: Model, loss: Loss, batch_size: int) -> Array:
    def product(example: Any) -> Array:
        outputs, forward = jax.linearize(lambda P: f(P, example), P)
        gradient = jax.grad(lambda y: loss(y, example))
        _, curved = jax.jvp(gradient, (outputs,), (forward(V),))
        return jax.linear_transpose(forward, P)(curved)[0]

    return expectation(product, examples, batch_size)


@partial(jax.jit, static_argnames=("f", "samples", "batch_size"))
def positional_fisher(
    f: Model, P: Positions, examples: Any, *, key: Array, samples: int = 4, batch_size: int = 8
) -> Float[Array, "n n"]:
    """Monte Carlo Fisher: an unbiased, positive semi-definite block trace for cross-entropy.

    For logits z and cross-entropy, ∂²loss/∂z² is the covariance of ∂loss/∂z over targets drawn
    from softmax(z). So α is the Fisher information E[g gᵀ] of the gradients g by P for such targets
    (Martens 2020): one backward pass a sample, whatever the size of the vocabulary.

    Args:
        f: the model; its outputs are logits `[..., classes]`, whose losses add.
        P, examples, batch_size: arguments of `positional_ntk`.
        key: PRNG key that draws the targets.
        samples: number of samples of each example.

    Raises:
        ValueError: as `positional_ntk`, and samples below 1.

    >>> f = lambda P, x: x * P[:, 0]
    >>> P, x = jnp.zeros((2, 1)), jnp.ones((1, 2))
    >>> positional_fisher(f, P, x, key=jax.random.key(0)).tolist()
    [[0.25, -0.25], [-0.25, 0.25]]
    """
    P, examples = _checked_inputs(f, lambda outputs, example: jnp.sum(outputs), P, examples)
    check_size("samples", samples)
    count = jax.tree.leaves(examples)[0].shape[0]

    def fisher(row: tuple[Any, Array]) -> Array:
        example, key = row
        logits, back = jax.vjp(lambda P: f(P, example), P)

        def outer(key: Array) -> Array:
            labels = jax.random.categorical(key, logits)
            truth = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
            gradient = back(jax.nn.softmax(logits) - truth)[0]
            return jnp.einsum("ic,jc->ij", gradient, gradient, precision=lax.Precision.HIGHEST)

        return jnp.mean(jax.vmap(outer)(jax.random.split(key, samples)), axis=0)

    rows = (examples, jax.random.split(key, count))
    return expectation(fisher, rows, batch_size) / P.shape[1]


@partial(jax.jit, static_argnames=("f", "loss", "batch_size"))
def positional_forcing(
    f: Model, loss: Loss, P: Positions, examples: Any, *, batch_size: int = 8
) -> Float[Array, "n d"]:
    """The forcing b = −∂/∂P of the expected loss at P, `[n, d]`: Eq. (6) of Cirrincione (2026).

    Args:
        f, loss, P, examples, batch_size: arguments of `positional_ntk`.

    >>> f = lambda P, x: x @ P
    >>> loss = lambda y, x: jnp.sum((y - 1) ** 2) / 2
    >>> positional_forcing(f, loss, jnp.zeros((2, 1)), jnp.array([[2.0, 1.0]])).tolist()
    [[2.0], [1.0]]
    """
    P, examples = _checked_inputs(f, loss, P, examples)

    def forcing(example: Any) -> Array:
        return -jax.grad(lambda P: loss(f(P, example), example))(P)

    return expectation(forcing, examples, batch_size)


def _checked_inputs(f: Model, loss: Loss, P: ArrayLike, examples: Any) -> tuple[Array, Any]:
    P, examples = jnp.asarray(P), jax.tree.map(jnp.asarray, examples)
    if P.ndim != 2 or not P.size or not jnp.issubdtype(P.dtype, jnp.floating):
        raise ValueError(
            f"P is {P.dtype}{list(P.shape)}: pass position vectors [n, d] of floats, which have "
            "gradients, and at least one number"
        )
    sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(examples)}
    if len(sizes) != 1 or sizes <= {(), (0,)}:
        raise ValueError(
            f"examples have leading axes {sorted(sizes)}: pass arrays (not lists of "
            "numbers) with one axis of examples in front, the same for all"
        )
    example = jax.tree.map(lambda leaf: jax.eval_shape(lambda x: x[0], leaf), examples)
    outputs = jax.eval_shape(f, P, example)
    value = jax.eval_shape(loss, outputs, example)
    if getattr(value, "shape", None) != ():
        raise ValueError(
            f"loss gives {getattr(value, 'shape', type(value))} for one example, not a scalar: sum "
            "or average what it gives"
        )
    return P, examples
