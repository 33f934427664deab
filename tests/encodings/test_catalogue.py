"""Laws over the whole catalogue, and what is computed about it against the definitions."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import EncodingSizes, attend, catalogue, chain, identity
from jaxpe.encodings.base import encoding_at
from tests.compilation import counted

SIZES = EncodingSizes(dim=32, num_heads=4, head_dim=8, length=24)
N = 10
NAMES = [entry.name for entry in catalogue() if not entry.variant_of]
ENTRIES = {entry.name: entry for entry in catalogue()}


def setting(name, *, dtype=np.float64, batch=()):
    """An encoding with parameters off their initial values, and content for an attention layer."""
    entry = ENTRIES[name]
    encoding = entry.first_layer(SIZES)
    rng = np.random.default_rng(3)
    params = jax.tree.map(
        lambda x: (x + 0.1 * rng.standard_normal(x.shape)).astype(dtype),
        encoding.init(jax.random.key(0)),
    )
    heads = (*batch, N, SIZES.num_heads, SIZES.head_dim)
    content = [rng.standard_normal(s).astype(dtype) for s in ((*batch, N, SIZES.dim), *[heads] * 3)]
    positions = np.sort(rng.choice(SIZES.length, (*batch, N)), axis=-1).astype(np.int32)
    if entry.coordinates > 1:
        positions = rng.integers(0, 9, (*batch, N, entry.coordinates), dtype=np.int32)
    return encoding, params, content, positions


def layer(encoding):
    """Attention with every hook in it, as a function of arrays."""

    def run(params, content, positions):
        x, q, k, v = content
        bound = encoding_at(encoding, params, x, positions)
        x = encoding.embed(params, x, positions)[..., : SIZES.dim]
        x = x.reshape(q.shape)
        return attend(
            bound, params, q + x, k + x, v + x, q_positions=positions, k_positions=positions
        )

    return run


@cache
def jitted(name):
    """The layer of an encoding as one program, and a list as long as it was traced."""
    once, traced = counted(layer(ENTRIES[name].first_layer(SIZES)))
    return jax.jit(once), traced


@pytest.mark.parametrize("name", NAMES)
def test_eager_jit_vmap_and_batches_agree(name):
    encoding, params, content, positions = setting(name, batch=(2,))
    run, (program, traced) = layer(encoding), jitted(name)
    whole = program(params, content, positions)
    before = len(traced)
    mapped = jax.jit(jax.vmap(run, in_axes=(None, 0, 0)))(params, content, positions)
    np.testing.assert_allclose(mapped, whole, atol=1e-12)
    one = [x[1] for x in content]
    np.testing.assert_allclose(run(params, one, positions[1]), whole[1], atol=1e-12)
    program(params, [x + 1 for x in content], positions + 1 if name in FAR else positions)
    assert len(traced) == before


# Encodings without a table that ends at the length.
FAR = [n for n in NAMES if n not in ("learned", "random", "information_optimal", "low_rank")]


@pytest.mark.parametrize("name", NAMES)
def test_reverse_and_forward_mode_agree_with_differences(name):
    encoding, params, content, positions = setting(name)
    run = layer(encoding)

    def loss(params, content):
        return jnp.sum(jnp.sin(run(params, content, positions)))

    @jax.jit
    def looked_at(at, direction):
        """Value, derivative along the direction, and gradient."""
        return *jax.jvp(loss, at, direction), jax.grad(loss, argnums=(0, 1))(*at)

    at, rng = (params, content), np.random.default_rng(4)
    direction = jax.tree.map(lambda x: rng.standard_normal(x.shape), at)
    _, forward, gradient = looked_at(at, direction)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    reverse = sum(np.vdot(g, d) for g, d in pairs)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    if name in FROZEN:  # the value moves with a frozen table, the gradient does not
        direction = (jax.tree.map(np.zeros_like, params), direction[1])
        _, forward, _ = looked_at(at, direction)
    h = 1e-5
    ahead, behind = (
        looked_at(jax.tree.map(lambda x, d, s=s: x + s * h * d, at, direction), direction)[0]
        for s in (1, -1)
    )
    np.testing.assert_allclose(forward, (ahead - behind) / (2 * h), rtol=2e-5, atol=1e-7)


FROZEN = ("random", "information_optimal", "fourier", "fope")


@pytest.mark.parametrize("name", NAMES)
def test_init_under_jit_and_vmap(name):
    encoding = ENTRIES[name].first_layer(SIZES)
    key = jax.random.key(5)
    eager, jitted = encoding.init(key), jax.jit(encoding.init)(key)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), eager, jitted)
    seeds = jax.vmap(encoding.init)(jax.random.split(key, 3))
    for one, many in zip(jax.tree.leaves(eager), jax.tree.leaves(seeds), strict=True):
        assert many.shape == (3, *one.shape)
        assert one.dtype == jnp.float64
    with jax.enable_x64(False):
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(encoding.init(key)))


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_drawn_with_a_key_of_its_own(name):
    """Equal keys give equal ranks of the first entries, whatever the distributions."""
    sizes = EncodingSizes(dim=64, num_heads=16, head_dim=16, length=64)
    init = ENTRIES[name].first_layer(sizes).init
    with jax.debug_key_reuse(True):
        jax.make_jaxpr(jax.jit(init))(jax.random.key(0))
    leaves = jax.tree.leaves(init(jax.random.key(1)))
    drawn = [x for x in map(np.ravel, leaves) if len(x) >= 8 and np.ptp(x) > 0]
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            n = min(len(a), len(b), 4096)
            ranks = [x[:n].argsort().argsort() for x in (a, b)]
            assert abs(np.corrcoef(*ranks)[0, 1]) < 0.95


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name):
    """Inputs keep theirs; what is sensitive is computed in float32 from the very same numbers."""
    encoding, params, content, positions = setting(name, dtype=np.float32)
    x, q, k, _ = (jnp.asarray(c).astype(jnp.bfloat16) for c in content)
    encoding = encoding_at(encoding, params, x, positions)
    for hook, y in (("embed", x), ("query", q), ("key", k)):
        out = getattr(encoding, hook)(params, y, positions)
        assert out.dtype == jnp.bfloat16
        wide = getattr(encoding, hook)(params, y.astype(jnp.float32), positions)
        np.testing.assert_array_equal(out, wide.astype(jnp.bfloat16))
    bias = encoding.bias(params, q, k, positions, positions)
    assert bias is None or (bias.dtype == jnp.float32 and bias.ndim == q.ndim)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_close_to_float64(name):
    _, params, content, positions = setting(name, batch=(2,))
    run, _ = jitted(name)
    exact = run(params, content, positions)
    narrow = jax.tree.map(lambda x: np.asarray(x, np.float32), (params, content))
    np.testing.assert_allclose(run(*narrow, positions), exact, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_chain_with_identity_is_the_encoding(name):
    encoding, params, content, positions = setting(name)
    alone = layer(encoding)(params, content, positions)
    chained, own = chain(identity(), chain(encoding, identity())), ((), (params, ()))
    np.testing.assert_array_equal(layer(chained)(own, content, positions), alone)
    for hook in encoding._fields[1:]:
        assert chained.defines(hook) == encoding.defines(hook)
    if encoding.defines("vectors"):
        expected = encoding.vectors(params, positions)
        np.testing.assert_array_equal(chained.vectors(own, positions), expected)


@cache
def logits_at(name):
    """Logits by positions, compiled once for whole and once for fractional ones."""
    encoding, params, content, positions = setting(name)
    encoding = encoding_at(encoding, params, content[0], positions)
    return jax.jit(
        lambda positions: jaxpe.attention_logits(
            encoding, params, *content[1:3], q_positions=positions, k_positions=positions
        )
    )


# Waves without a common shift, rotations that do not commute, groups and chunks, a table.
NOT_BY_OFFSET = ("fope", "liere", "self_extend", "dual_chunk", "tupe")


@pytest.mark.parametrize("shift", [-977, 1, 999_000])
@pytest.mark.parametrize(
    "name",
    [
        e.name
        for e in catalogue()
        if e.family not in ("absolute", "orthogonal", "temperature", "masks", "layer_patterns")
        if e.name not in NOT_BY_OFFSET and not e.variant_of
    ],
)
def test_logits_depend_on_offsets_alone(name, shift):
    """Common shifts of whole and of fractional positions change nothing.

    But for FIRE, which on purpose divides by the query's position beyond its threshold of 512.
    """
    if name == "xpos":
        shift = min(shift, 100_000)  # the two factors leave the range of float64 after that
    positions = setting(name)[3]
    logits = logits_at(name)
    for start in (
        positions,
        positions + 0.25 * np.arange(N).reshape(N, *[1] * (positions.ndim - 1)),
    ):
        change = np.abs(logits(start) - logits(start + shift)).max()
        assert change > 1e-3 if name == "fire" and shift > 512 else change < 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_vectors_or_induced_distances_give_a_stress(name):
    """Stress can be asked of every encoding whose logits are products and biases of positions."""
    entry = ENTRIES[name]
    encoding, params, _, _ = setting(name)
    if entry.family != "layer_patterns":
        assert bool(entry.vectors) == encoding.defines("vectors")
    n = 8
    positions = np.repeat(np.arange(n)[:, None], entry.coordinates, 1)
    positions = positions[:, 0] if entry.coordinates == 1 else positions
    heads = {"num_heads": SIZES.num_heads, "head_dim": SIZES.head_dim}
    if encoding.defines("context"):
        with pytest.raises(ValueError, match="pass"):
            jaxpe.encodings.encoding_distances(encoding, params, positions, **heads)
        return
    line = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :]).astype(float)

    @jax.jit
    def fitted(params):
        delta = jaxpe.encodings.encoding_distances(encoding, params, positions, **heads)
        return delta.values, jaxpe.scaled_stress(delta, line).stress

    values, fit = fitted(params)
    assert np.isfinite(values).all()
    # Scaled queries look at keys alike, whatever their positions; masks are no part of logits.
    alike = name == "none" or entry.family in ("temperature", "masks")
    assert fit == 1.0 if alike else 0 <= fit < 1
    if name == "alibi":
        assert fit < 1e-12


# What follows from each definition, and what the literature says where it says something: position
# information, where a gradient goes because of the encoding, and positions beyond the length.
EXPECTED = {
    "none": ("", (), "constant"),
    "sinusoidal": ("absolute relative", (), "yes"),
    "learned": ("absolute", ("table",), "no"),
    "random": ("absolute", (), "no"),
    "fourier": ("absolute relative", (), "yes"),
    "information_optimal": ("absolute", (), "no"),
    "low_rank": ("absolute", ("A", "B"), "no"),
    "legendre": ("absolute", (), "yes"),
    "legendre_clipped": ("absolute", (), "constant"),
    "legendre_log": ("absolute", (), "constant"),
    "chebyshev": ("absolute", (), "constant"),
    "cosine": ("absolute", (), "repeats"),
    "wavelet": ("absolute", (), "yes"),
    "spherical_harmonics": ("absolute", (), "repeats"),
    "rope": ("relative", ("queries", "keys"), "yes"),
    "rope_partial": ("relative", ("queries", "keys"), "yes"),
    "xpos": ("relative", ("queries", "keys"), "yes"),
    "axial_rope": ("relative", ("queries", "keys"), "yes"),
    "mrope": ("relative", ("queries", "keys"), "yes"),
    "alibi": ("relative", (), "yes"),
    "t5": ("relative", ("table",), "constant"),
    "kerple_log": ("relative", ("log_r1", "log_r2"), "yes"),
    "kerple_power": ("relative", ("log_r1", "logit_r2"), "yes"),
    "fire": (
        "absolute relative",
        ("bias_in", "bias_out", "log_c", "log_threshold", "weight_in", "weight_out"),
        "yes",
    ),
    "cope": ("relative", ("table", "queries", "keys"), "constant"),
    "shaw": ("relative", ("key_table", "value_table", "queries", "weights"), "constant"),
    "transformer_xl": (
        "relative",
        ("content_bias", "position_bias", "projection", "queries", "keys"),
        "yes",
    ),
    "fox": ("relative", ("bias", "kernel"), "yes"),
    "cable": ("relative", ("bias", "kernel"), "yes"),
    "grape_a": ("relative", ("gate", "rate", "keys"), "yes"),
    "grape_m": ("relative", ("log_frequencies", "queries", "keys"), "yes"),
    "selective_rope": ("relative", ("conv", "projection", "queries", "keys"), "yes"),
    "path": (
        "relative",
        ("bias", "conv", "down", "kernel", "up", "queries", "keys"),
        "repeats",  # far products die out, or swing between two values
    ),
    "pope": ("relative", ("phase", "queries", "keys"), "yes"),
    "fope": ("absolute", ("queries", "keys"), "yes"),
    "ssmax": ("absolute", ("scale", "queries"), "constant"),
    "llama4_scaling": ("absolute", ("queries",), "constant"),
    "ministral_scaling": ("absolute", ("queries",), "constant"),
    "sliding_window": ("relative", (), "constant"),
    "attention_chunks": ("absolute", (), "constant"),
    "stick_breaking": ("relative", ("weights",), "constant"),
    "smollm3": ("relative", ("queries", "keys"), "yes"),
    "llama4": ("absolute", ("queries", "keys"), "constant"),
    "gemma3": ("relative", ("queries", "keys"), "constant"),
    "mixed_rope": ("relative", ("frequencies", "queries", "keys"), "yes"),
    # Along the line of equal coordinates on which it is tried: rotations there commute.
    "liere": ("relative", ("upper", "queries", "keys"), "yes"),
    "comrope": ("relative", ("multipliers", "upper", "queries", "keys"), "yes"),
    "rerope": ("relative", ("queries", "keys"), "constant"),
    "self_extend": ("absolute", ("queries", "keys"), "yes"),
    "dual_chunk": ("absolute", ("queries", "keys"), "repeats"),
    "deberta": ("relative", ("key_table", "query_table", "queries", "keys"), "constant"),
    "tupe": (
        "absolute",
        (
            *("buckets", "first", "key_projection", "norm_scale", "norm_shift"),
            *("query_projection", "table", "queries"),
        ),
        "no",
    ),
    "dape": (
        "relative",
        (
            *("base.log_r1", "base.log_r2", "bias_in", "bias_out", "weight_in", "weight_out"),
            *("queries", "keys"),
        ),
        "yes",
    ),
    "inkling": ("relative", ("profiles", "projection"), "constant"),
}


@cache
def computed(name):
    # Beyond FIRE's and T5's own thresholds, so that these show.
    sizes = EncodingSizes(dim=32, num_heads=2, head_dim=16, length=600)
    return jaxpe.encoding_properties(ENTRIES[name], sizes=sizes)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_computed_is_what_the_definitions_say(name):
    found = computed(name)
    position, gradient, beyond = EXPECTED[name]
    kinds = [kind for kind in ("absolute", "relative") if getattr(found, kind)]
    assert " ".join(kinds) == position
    assert found.order == (name != "none")
    assert found.gradient == gradient
    assert found.beyond == beyond
    assert (found.flops > 0) == (found.bytes > 0) == (name != "none")


def test_parameters_are_counted():
    trained = {name: computed(name).trainable for name in ("learned", "t5", "shaw", "rope")}
    assert trained == {"learned": 600 * 32, "t5": 32 * 2, "shaw": 2 * 33 * 16, "rope": 0}
    assert computed("random").fixed == 600 * 32


def test_learned_rows_get_the_gradient_of_every_sample_at_their_position():
    """L̇PE[pos] is the sum of L̇x over the samples at pos, and 0 where there is none."""
    encoding = jaxpe.learned(length=6, dim=3)
    params = encoding.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 4, 5, 3))
    positions = rng.integers(0, 5, (4, 5), dtype=np.int32)

    def loss(params, x):
        return jnp.sum(weight * jnp.sin(encoding.embed(params, x, positions)))

    to_table, to_x = jax.grad(loss, argnums=(0, 1))(params, x)
    expected = np.zeros((6, 3))
    np.add.at(expected, positions, np.asarray(to_x))
    np.testing.assert_allclose(to_table["table"], expected, atol=1e-12)
    assert not expected[5].any()


PAGE = Path(__file__).parents[2] / "docs" / "encodings.md"


def test_the_page_shows_what_is_computed():
    """Its table is the output of `jaxpe encodings --about overview --form markdown`: a few rows.

    Another version of the compiler may change costs a little.
    """
    page = PAGE.read_text("utf-8")
    shown = rows(re.search(r"^\| encoding \| family .*?(?=\n\n)", page, re.M | re.S).group())
    assert [*shown] == [f"`{name}`" for name in ENTRIES]
    for name, computed_row in rows(printed_table(["none", "rope", "t5"])).items():
        assert [*computed_row] == [*shown[name]]
        for column, cell in computed_row.items():
            if column in ("FLOPs", "bytes") and cell[0].isdigit():
                assert number(cell) == pytest.approx(number(shown[name][column]), rel=0.05)
            else:
                assert cell == shown[name][column]


def rows(table):
    """Rows of a Markdown table by name, each a dictionary by column."""
    header, _, *body = ([c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines())
    return {row[0]: dict(zip(header, row, strict=True)) for row in body}


def number(cell):
    return float(cell.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(cell[-1], 1)


def printed_table(names):
    """Costs are those of the code that a user's compiler makes, whatever flags are set here."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", "from jaxpe.cli.main import main; main()", "encodings"]
    done = subprocess.run(
        [*command, *names, "--about", "overview", "--form", "markdown"],
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"JAX_ENABLE_X64": "0"},
    )
    return done.stdout.strip()
