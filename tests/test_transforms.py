"""Every function of the table under every transform, and called again with other numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases import CALLS, CASES, EXEMPT, public_functions
from tests.cases.geometry import GEOMETRY
from tests.compilation import compilations

# Their rows make a new function at every call; rows of CALLS pass the same one.
NEW_FUNCTIONS = ("principal_eigenpairs", "sum_over_pairs", "lanczos_eigenvalues", "ablate_heads")
# Drawn from a stream of bits that depends on the width of floats.
DRAWN = ("random_vectors", "operator_norm", "parameter_sensitivity", "positional_fisher")
# Draw: no key is used twice.
KEYED = (
    *("rotate_within_documents", "positional_information", "split_half_geometry", "smacof"),
    *("disjoint_geometries", "random_vectors", "operator_norm", "lanczos_eigenvalues"),
    *("parameter_sensitivity", "positional_fisher"),
)
# Capped at 1.
BOUNDED = ("holm_adjusted", "cross_validated_choice")
# Where roots and singular values are differentiated twice; tests/geometry has eigenvectors.
TWICE = ("stress", "hellinger", "entropy_rank", "gram_matrix", "distances_from_gram")
STEP = 1e-6  # of finite differences


def floating(x):
    return np.issubdtype(np.asarray(x).dtype, np.floating)


def close(actual, expected, tolerance):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("package", EXEMPT)
def test_every_public_function_is_in_the_table(package):
    rows = {*CALLS, *CASES}
    called = rows | {name for name in public_functions(package) if f"{name}_of_points" in rows}
    assert public_functions(package) - called == EXEMPT[package]


def program_of(name):
    """Values in a batch; with a `reduce`, values nearby and derivatives along a direction too."""
    case = CASES[name]
    example = case.make(np.random.default_rng(0))
    floats = [k for k, x in enumerate(example) if floating(x)]
    rng = np.random.default_rng(9)
    direction = {k: rng.standard_normal(example[k].shape) for k in floats}
    twice = name in GEOMETRY and any(word in name for word in TWICE)

    def value(*xs):
        result = case.function(*xs)
        return case.reduce(result), result

    def program(*xs):
        if case.reduce is None:
            return case.function(*xs), {}

        def moved(t):
            return [x + t * direction[k] if k in direction else x for k, x in enumerate(xs)]

        def slope(t):
            gradients, _ = jax.grad(value, argnums=tuple(floats), has_aux=True)(*moved(t))
            pairs = zip(gradients, direction.values(), strict=True)
            return sum(jnp.vdot(gradient, step) for gradient, step in pairs)

        def along(t):
            return jax.jvp(lambda s: value(*moved(s)), (t,), (1.0,), has_aux=True)

        steps = jnp.array([-STEP, 0.0, STEP])
        values, forward, results = jax.vmap(along)(steps)
        found = {"values": values, "forward": forward[1]}
        if twice:
            slopes, second = jax.vmap(lambda t: jax.jvp(slope, (t,), (1.0,)))(steps)
            found |= {"backward": slopes[1], "second": second[1], "slopes": slopes}
        else:
            found["backward"] = slope(0.0)
        return jax.tree.map(lambda x: x[1], results), found

    return jax.jit(jax.vmap(program))


def check_derivatives(values, forward, backward, second=None, slopes=None):
    """First derivatives against differences of values, second ones against those of gradients."""
    differences = (values[:, 2] - values[:, 0]) / (2 * STEP)
    np.testing.assert_allclose(forward, differences, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-11)
    if second is not None:
        differences = (slopes[:, 2] - slopes[:, 0]) / (2 * STEP)
        np.testing.assert_allclose(second, differences, rtol=1e-5, atol=1e-5)


def check_scale(function, row):
    """A result that is homogeneous at one, two and four times its arguments is so at any scale.

    Thresholds that should be relative are found by it.
    """

    def scaled(c):
        result = function(*(x * x.dtype.type(c) if floating(x) else x for x in row))
        return [np.asarray(x) for x in jax.tree.leaves(result) if floating(x)]

    scales = (2, 4, 2.0**-100, 2.0**60)
    once, others = scaled(1), zip(*map(scaled, scales), strict=True)
    for x, (twice, *rest) in zip(once, others, strict=True):
        size = np.abs(x[np.isfinite(x)]).max(initial=0)
        with np.errstate(all="ignore"):
            degrees = np.log2(np.abs(twice / x))[np.abs(x) > 1e-6 * size]
        if not np.isfinite(degrees).all() or not degrees.size:
            continue
        degree = round(2 * np.median(degrees)) / 2
        errors = [
            np.nanmax(np.abs(found / np.float64(c) ** degree - x), initial=0) / size
            for found, c in zip((twice, *rest), scales, strict=True)
        ]
        if max(errors[:2]) < 1e-7:
            assert max(errors[2:]) < 1e-6, degree


@pytest.mark.parametrize("name", CASES)
def test_transforms_agree(name):
    """Eagerly in float32, and mapped and differentiated under `jit` in float64."""
    case, rows = CASES[name], [CASES[name].make(np.random.default_rng(seed)) for seed in range(3)]
    program = program_of(name)

    def results(rows):
        found = jax.device_get(program(*map(np.stack, zip(*rows, strict=True))))
        return [jax.tree.map(lambda leaf, k=k: leaf[k], found[0]) for k in range(len(rows))], found

    with jax.debug_key_reuse(name in KEYED):
        batched, (_, derivatives) = results(rows)
        if derivatives:
            check_derivatives(**{name: x[:2] for name, x in derivatives.items()})
        if name not in BOUNDED and any(map(floating, rows[0])):
            check_scale(lambda *row: results([row, *rows[1:]])[0][0], rows[0])

    narrow = [[x.astype(np.float32) if x.dtype == np.float64 else x for x in row] for row in rows]
    with jax.enable_x64(False):
        alone = [case.function(*narrow[0])]
        kinds = {jnp.asarray(leaf).dtype.name for leaf in jax.tree.leaves(alone)}
        assert not kinds & {"float64", "complex128", "int64", "uint64"}
        with compilations() as compiled:
            if name not in NEW_FUNCTIONS:
                alone += [case.function(*row) for row in narrow[1:]]
    assert not compiled
    if name not in DRAWN:
        for actual, expected in zip(alone, batched, strict=False):
            close(actual, expected, 2e-4)


# Counts that must be concrete, and a model that is made at the first call and kept.
WITHOUT_JIT = ("compare_geometries", "generate sampled")
DRAWING_CALLS = (
    *("sequence_task", "explained_by_chance", "generate sampled", "nope_decoder", "mask_tokens"),
    *("train_step in parts", "masked_lm", "init_state", "compare_geometries"),
)


@pytest.mark.parametrize("name", DRAWING_CALLS)
def test_no_key_is_used_twice_in_a_call(name):
    def call():
        leaves = jax.tree.leaves(CALLS[name](np.random.default_rng(0)))
        return [leaf for leaf in leaves if isinstance(leaf, jax.Array)]

    with jax.debug_key_reuse(True):
        call() if name in WITHOUT_JIT else jax.make_jaxpr(jax.jit(call))()


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_compiles_nothing(name):
    jax.block_until_ready(jax.tree.leaves(CALLS[name](np.random.default_rng(0))))
    with compilations() as compiled:
        CALLS[name](np.random.default_rng(1))
    assert not compiled


def test_compilations_are_seen_also_where_the_cache_has_them():
    x = jnp.ones(3)
    for _ in range(2):
        with compilations() as compiled:
            jax.lax.map(lambda value: 2 * value, x)  # a new function each time
        assert len(compiled) == 1
    with compilations() as compiled:
        jax.lax.neg(x)
        jax.lax.neg(x)
    assert len(compiled) <= 1
