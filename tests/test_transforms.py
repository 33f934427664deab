"""Every function of the table under every transform, and called again with other numbers."""

import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import encodings, geometry
from tests.cases import CALLS, CASES, EXEMPT, public_functions
from tests.cases.geometry import GEOMETRY
from tests.compilation import compilations

# Their rows make a new function at every call; rows of CALLS pass the same one.
NEW_FUNCTIONS = ("principal_eigenpairs", "sum_over_pairs", "lanczos_eigenvalues", "ablate_heads")
# Results of the default float, whatever the arguments are.
DEFAULT_FLOAT = ("rotary_orbit", "alibi_line", "ablate_heads")
# Drawn from a stream of bits that depends on the width of floats.
DRAWN = (
    *("random_vectors", "operator_norm", "parameter_sensitivity"),
    "positional_fisher",
)
STEP = 1e-6  # of finite differences
NAMED_CALLS = {name: call for calls in CALLS.values() for name, call in calls.items()}


def arrays(name, seed):
    return CASES[name].make(np.random.default_rng(seed))


def stacked(rows):
    return tuple(map(np.stack, zip(*rows, strict=True)))


def close(actual, expected, rtol=1e-9, atol=1e-9):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


@pytest.mark.parametrize("package", CALLS)
def test_every_public_function_is_in_the_table(package):
    exempt = set(EXEMPT.get(package, ()))
    rows = {*CALLS[package], *CASES}
    called = {name.split(" ")[0] for name in rows}
    called |= {name for name in public_functions(package) if f"{name}_of_points" in rows}
    assert public_functions(package) - called == exempt


def test_no_package_is_forgotten():
    """Jobs compile what they need once a run; plots and plans of layers nothing."""
    jobs = {"_core", "analysis", "cli", "conformance", "plans", "plot", "report"}
    found = {module.name for module in pkgutil.iter_modules(jaxpe.__path__) if module.ispkg}
    assert found - jobs == set(CALLS)


@pytest.mark.parametrize("module", [geometry, encodings])
def test_flat_names_are_those_of_their_package(module):
    shared = set(module.__all__) & set(dir(jaxpe))
    assert len(shared) > 25
    assert all(getattr(jaxpe, name) is getattr(module, name) for name in shared)


# Capped at 1.
BOUNDED = ("holm_adjusted", "cross_validated_choice")


def floating(x):
    return np.issubdtype(np.asarray(x).dtype, np.floating)


def check_scale(name, function, row, exact=None):
    """A result that is homogeneous at one, two and four times its arguments is so at any scale.

    Thresholds that should be relative are found by it. In float32 leaves are left out that rounding
    makes: they are far from the `exact` ones.
    """
    if name in BOUNDED or not any(map(floating, row)):
        return

    def leaves(result):
        return [np.asarray(x) for x in jax.tree.leaves(result) if floating(x)]

    def scaled(c):
        return leaves(function(*(x * x.dtype.type(c) if floating(x) else x for x in row)))

    rtol, *scales = (1e-6, 2.0**-100, 2.0**60) if exact is None else (1e-3, 2.0**-24, 2.0**20)
    once = scaled(1)
    others = zip(*(scaled(c) for c in (2, 4, *scales)), strict=True)
    for x, true, (twice, *rest) in zip(once, leaves(exact) or once, others, strict=True):
        size = np.abs(x[np.isfinite(x)]).max(initial=0)
        with np.errstate(all="ignore"):
            degrees = np.log2(np.abs(twice / x))[np.abs(x) > rtol * size]
        if not np.isfinite(degrees).all() or not degrees.size:
            continue
        degree = round(2 * np.median(degrees)) / 2
        errors = [
            np.nanmax(np.abs(found / np.float64(c) ** degree - x), initial=0) / size
            for found, c in zip((twice, *rest), (2, 4, *scales), strict=True)
        ]
        if max(errors[:2]) < rtol / 10 and np.nanmax(np.abs(true - x), initial=0) < 0.01 * size:
            assert max(errors[2:]) < rtol, degree


@pytest.mark.parametrize("name", CASES)
def test_eager_jit_vmap_and_float32_agree_and_compile_once(name):
    function, rows = CASES[name].function, [arrays(name, seed) for seed in range(3)]
    jitted, mapped = jax.jit(function), jax.jit(jax.vmap(function))

    def first(*row):
        """The result for a row, in a batch with the two others."""
        results = jax.device_get(mapped(*stacked([row, *rows[1:]])))
        return jax.tree.map(lambda leaf: leaf[0], results)

    batched = jax.device_get(mapped(*stacked(rows)))
    alone = [function(*rows[0])]
    with compilations() as compiled:
        if name not in NEW_FUNCTIONS:
            alone += [function(*row) for row in rows[1:]]
        first(*rows[1])
    assert not compiled
    results = [jax.tree.map(lambda leaf, k=k: leaf[k], batched) for k in range(len(rows))]
    for actual, expected in zip(alone, results, strict=False):
        close(actual, expected)

    single = [x.astype(np.float32) if x.dtype == np.float64 else x for x in rows[0]]
    if any(x.dtype == np.float32 for x in single) and name not in DEFAULT_FLOAT:
        shapes = jax.tree.leaves(jax.eval_shape(jitted, *single))
        assert not [shape for shape in shapes if shape.dtype == np.float64]
    with jax.enable_x64(False):
        rough = jitted(*single)
        kinds = {jnp.asarray(leaf).dtype.name for leaf in jax.tree.leaves(rough)}
        assert not kinds & {"float64", "complex128", "int64", "uint64"}
    if name not in DRAWN:
        close(rough, results[0], rtol=2e-4, atol=2e-4)
    check_scale(name, first, rows[0])
    with jax.enable_x64(False):
        check_scale(name, jitted, single, exact=results[0])


# One key serves twice: corpora share their halvings, and a settled search returns the key that it
# has split.
SHARED_KEYS = (
    *("position_geometry", "position_geometry_from_counts", "significant_rank", "position_rank"),
    *("disjoint_position_geometries", "position_intervals", "variance_shares"),
    *("principal_eigenpairs", "classical_mds_from_points_by_krylov"),
)
DRAWING_CALLS = (
    *("sequence_task", "explained_by_chance", "generate sampled", "nope_decoder"),
    "train_step in parts",
    *("mask_tokens", "masked_lm", "init_state", "compare_geometries"),
)


@pytest.mark.parametrize("name", [name for name in CASES if name not in SHARED_KEYS])
def test_no_key_is_used_twice(name):
    with jax.debug_key_reuse(True):
        jax.make_jaxpr(jax.jit(CASES[name].function))(*arrays(name, 0))


# Counts that must be concrete, and a model that is made at the first call and kept.
WITHOUT_JIT = ("compare_geometries", "generate sampled")


@pytest.mark.parametrize("name", DRAWING_CALLS)
def test_no_key_is_used_twice_in_a_call(name):
    def call():
        leaves = jax.tree.leaves(NAMED_CALLS[name](np.random.default_rng(0)))
        return [leaf for leaf in leaves if isinstance(leaf, jax.Array)]

    with jax.debug_key_reuse(True):
        call() if name in WITHOUT_JIT else jax.make_jaxpr(jax.jit(call))()


# Where roots, eigenvectors and singular vectors are differentiated twice.
TWICE = ("mds", "stress", "procrustes", "principal", "low_rank", "hellinger", "rank", "gram")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.reduce is not None])
def test_derivatives_equal_finite_differences_in_both_modes_and_in_a_batch(name):
    """First derivatives of values, and second ones of gradients."""
    case, rows = CASES[name], [arrays(name, seed) for seed in range(2)]
    floats = tuple(k for k, x in enumerate(rows[0]) if floating(x))
    rng = np.random.default_rng(9)
    direction = {k: rng.standard_normal(rows[0][k].shape) for k in floats}
    twice = name in GEOMETRY and any(word in name for word in TWICE)

    def value(*xs):
        return case.reduce(case.function(*xs))

    @jax.jit
    @jax.vmap
    def derivatives(*xs):
        """Values around a point, and derivatives along the direction in both modes."""

        def moved(t):
            return [x + t * direction[k] if k in direction else x for k, x in enumerate(xs)]

        def slope(t):
            gradients = jax.grad(value, argnums=floats)(*moved(t))
            pairs = zip(gradients, direction.values(), strict=True)
            return sum(jnp.vdot(gradient, step) for gradient, step in pairs)

        steps = jnp.array([-STEP, 0.0, STEP])
        values, forward = jax.vmap(lambda t: jax.jvp(lambda s: value(*moved(s)), (t,), (1.0,)))(
            steps
        )
        if not twice:
            return values, forward[1], slope(0.0)
        backward, second = jax.jvp(slope, (0.0,), (1.0,))
        return values, forward[1], backward, second, jax.vmap(slope)(steps[::2])

    values, forward, backward, *others = derivatives(*stacked(rows))
    differences = (values[:, 2] - values[:, 0]) / (2 * STEP)
    np.testing.assert_allclose(forward, differences, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-11)
    if twice:
        second, slopes = others
        differences = (slopes[:, 1] - slopes[:, 0]) / (2 * STEP)
        np.testing.assert_allclose(second, differences, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMED_CALLS)
def test_a_second_call_compiles_nothing(name):
    jax.block_until_ready(jax.tree.leaves(NAMED_CALLS[name](np.random.default_rng(0))))
    with compilations() as compiled:
        NAMED_CALLS[name](np.random.default_rng(1))
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
