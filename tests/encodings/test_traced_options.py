"""Numeric options of encodings as traced numbers: under jit, grad and vmap, against concrete ones.

Options that decide a shape, a bucket or a window stay plain numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe.encodings.base import encoding_at
from jaxpe.plans import scaling
from tests.unchecked import unchecked

DIM, HEADS, HEAD_DIM, N = 16, 2, 8, 6
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, DIM))
HEAD = RNG.standard_normal((3, N, HEADS, HEAD_DIM))
POSITIONS = np.array([0, 1, 3, 4, 8, 11], np.int32)
COUNTS = RNG.integers(1, 9, (12, 20), dtype=np.int32)
TABLE = RNG.standard_normal((12, DIM))
HEAD_SIZES = {"num_heads": HEADS, "head_dim": HEAD_DIM}
ROPE = encodings.rope(head_dim=HEAD_DIM)
TWO = np.array([0.5, 0.2])
STEP = 1e-6  # of finite differences


class Option(NamedTuple):
    """An array as a function of options by name, and a value of each option."""

    function: Callable[..., jax.Array]
    values: dict[str, Any]


def attended(encoding, positions):
    """Outputs of attention with every hook of an encoding, at the parameters of `init`."""
    params = encoding.init(jax.random.key(1))
    bound = encoding_at(encoding, params, X, positions)
    x = encoding.embed(params, X, positions)[..., :DIM].reshape(N, HEADS, HEAD_DIM)
    where = {"q_positions": positions, "k_positions": positions}
    return encodings.attend(bound, params, *(part + x for part in HEAD), **where)


def layers(encoding, axes=1):
    """Outputs of an encoding, or of the layers of a pattern; positions have `axes` coordinates."""
    grid = np.stack([POSITIONS, POSITIONS[::-1], POSITIONS // 2][:axes], axis=-1)
    positions = POSITIONS if axes == 1 else grid
    if isinstance(encoding, encodings.LayerPattern):
        return jnp.stack([attended(encoding.at(layer), positions) for layer in (0, 3, 5)])
    return attended(encoding, positions)


def of_vectors(name, argument, value, **options):
    """An option of a function of positions, and its array."""
    function = partial(getattr(encodings, name), POSITIONS, **options)
    return {f"{name} {argument}": Option(function, {argument: value})}


def of(name, values, *, axes=1, **options):
    """Options of a constructor, each with its value."""
    make = getattr(encodings, name)
    outputs = lambda **changed: layers(make(**options, **changed), axes)  # noqa: E731
    return {" ".join([name, *values]): Option(outputs, values)}


def of_scaling(kind, values, **fixed):
    """Options of a scaling of RoPE, each with its value."""
    make = getattr(scaling, kind)

    def outputs(**changed):
        return layers(encodings.rope(head_dim=HEAD_DIM, scaling=make(**fixed | changed)))

    return {" ".join([kind, *values]): Option(outputs, values)}


# A context that the positions exceed, and one that they do not.
SHORT, LONG = ({"original_max_position_embeddings": length} for length in (8, 99))
RAMP = {"factor": 4.0, "beta_fast": 0.5, "beta_slow": 0.1}
FOUR = np.array([1.0, 1.5, 2.0, 3.0])
DIVISORS = {"short_factor": tuple(FOUR), "long_factor": tuple(2 * FOUR)}

OPTIONS: dict[str, Option] = {
    **of_vectors("power_positions", "tau", 0.5),
    **of_vectors("power_positions", "power", 0.3),
    **of_vectors("rotary_orbit", "base", 100.0, dim=4),
    "random_vectors scale": Option(
        lambda scale: encodings.random_vectors(jax.random.key(0), N, dim=2, scale=scale),
        {"scale": 2.0},
    ),
    "rope_frequencies base": Option(
        lambda base: encodings.rope_frequencies(head_dim=8, base=base).inverse, {"base": 100.0}
    ),
    "attend scale": Option(
        partial(encodings.attend, ROPE, (), *HEAD, q_positions=POSITIONS, k_positions=POSITIONS),
        {"scale": 0.3},
    ),
    **of("from_matrix", {"scale": 2.0}, P=TABLE, trainable=True),
    **of("information_optimal", {"scale": 2.0}, counts=COUNTS, dim=DIM, trainable=True),
    **of("scale_positions", {"factor": 0.5}, encoding=ROPE),
    **of("warp_positions", {"tau": 0.5, "power": 0.3}, encoding=ROPE, length=12),
    **of("rerope", {"leak": 0.3}, encoding=ROPE, window=4),
    **of("sinusoidal", {"base": 100.0, "scale": 2.0}, dim=DIM),
    **of("fourier", {"sigma": 0.2, "scale": 2.0}, dim=DIM, learnable=True),
    **of("legendre", {"s": 5.0, "scale": 2.0}, dim=DIM, length=12, position_map="log"),
    **of("log_position", {"tau": 0.5, "power": 0.3, "scale": 2.0}, dim=DIM, length=12),
    **of("learned", {"stddev": 0.5}, dim=DIM, length=12),
    **of("random_fixed", {"scale": 0.5}, dim=DIM, length=12),
    **of("rope", {"base": 100.0}, head_dim=HEAD_DIM),
    **of("axial_rope", {"base": 100.0}, axes=2, head_dim=HEAD_DIM),
    **of("axial_rope", {"frequencies": TWO}, axes=2, head_dim=HEAD_DIM),
    **of(
        "xpos",
        {"base": 100.0, "scale_base": 20.0, "gamma": 0.4, "center": 3.0},
        head_dim=HEAD_DIM,
    ),
    **of("llama4", {"base": 100.0, "temperature": 0.2}, head_dim=HEAD_DIM, temperature_period=2),
    **of(
        "fope",
        {"stddev": 0.3},
        **HEAD_SIZES,
        length=99,
        base=100.0,
        learnable=True,
    ),
    **of("pope", {"base": 100.0}, **HEAD_SIZES),
    **of("selective_rope", {"base": 100.0}, dim=DIM, **HEAD_SIZES),
    **of("alibi", {"slopes": TWO}, num_heads=HEADS),
    **of("fire", {"threshold": 6.0, "c": 0.1}, num_heads=HEADS),
    **of("transformer_xl", {"base": 100.0, "stddev": 0.5}, **HEAD_SIZES),
    **of("inkling", {"alpha": 0.1, "stddev": 0.5}, num_heads=HEADS, dim=DIM, log_floor=2),
    **of("cable", {"gate_bias": 0.3, "stddev": 0.5}, num_heads=HEADS, dim=DIM),
    **of("path_attention", {"stddev": 0.5}, dim=DIM, **HEAD_SIZES),
    **of("ssmax", {"scale": 0.4}, num_heads=HEADS),
    **of("position_temperature", {"scale": 0.2}, period=2),
    **of_scaling("LinearScaling", {"factor": 4.0}),
    **of_scaling("NtkScaling", {"factor": 4.0}),
    **of_scaling("DynamicScaling", {"factor": 2.0}, **SHORT),
    **of_scaling("NtkByPartsScaling", RAMP, truncate=False, **SHORT),
    **of_scaling("YarnScaling", RAMP, truncate=False, **SHORT),
    **of_scaling("YarnScaling", {"mscale": 0.7, "mscale_all_dim": 1.0}, factor=4.0, **SHORT),
    **of_scaling("YarnScaling", {"attention_factor": 1.5}, factor=4.0, **SHORT),
    **of_scaling(
        "Llama3Scaling", {"factor": 4.0, "low_freq_factor": 0.1, "high_freq_factor": 2.0}, **SHORT
    ),
    **of_scaling("LongRopeScaling", {"factor": 2.0}, **DIVISORS, **SHORT),
    **of_scaling("LongRopeScaling", {"attention_factor": 1.5}, **DIVISORS, **SHORT),
    **of_scaling("LongRopeScaling", {"long_factor": FOUR}, short_factor=FOUR, **SHORT),
    **of_scaling("LongRopeScaling", {"short_factor": FOUR}, long_factor=FOUR, **LONG),
    **of_scaling("ProportionalScaling", {"factor": 4.0}, fraction=0.5),
}
FROZEN = ("random_fixed scale",)  # its parameters receive no gradient


@pytest.mark.parametrize("name", OPTIONS)
def test_traced_options_equal_concrete_ones(name):
    function, values = OPTIONS[name]

    def at(ts):
        """The array where each option is 1 + t times its value."""
        changed = {n: np.asarray(v) * (1 + t) for (n, v), t in zip(values.items(), ts, strict=True)}
        if not isinstance(ts, jax.core.Tracer):
            changed = {n: x if x.ndim else float(x) for n, x in changed.items()}
        return function(**changed)

    def total(ts):
        array = jnp.asarray(at(ts))
        return jnp.sum(jnp.sin(array)), array

    steps = STEP * np.eye(len(values))
    usual = np.full((1, len(values)), 0.2)

    @jax.jit
    def both(ts):
        return jax.vmap(jax.value_and_grad(total, has_aux=True))(ts), at(usual[0])

    ((totals, arrays), slopes), concrete = both(np.concatenate([usual, 0 * usual, steps, -steps]))
    np.testing.assert_allclose(arrays[0], concrete, rtol=1e-9, atol=1e-11)
    above, below = np.split(np.asarray(totals[2:]), 2)
    differences = (above - below) / (2 * STEP)
    assert (differences != 0).all()
    wanted = 0 if name in FROZEN else differences
    np.testing.assert_allclose(slopes[1], wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: encodings.sinusoidal(dim=x), "dim"),
        (lambda x: encodings.sliding_window(size=x), "size"),
        (lambda x: encodings.rope(head_dim=8, fraction=x), "fraction"),
        (lambda x: encodings.t5(num_heads=2, max_distance=x), "max_distance"),
    ],
)
def test_options_that_decide_shapes_say_so(make, name):
    with unchecked(), pytest.raises(ValueError, match=name):
        jax.jit(lambda x: make(x).vectors((), POSITIONS))(8.0)
