"""Laws over the whole catalogue, and what is computed about it against the definitions."""

import functools
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxpe import encodings
from jaxpe.encodings import EncodingSizes, attend, catalogue, chain, encoding_distances, identity
from jaxpe.encodings.base import Rows, encoding_at
from tests.compilation import compilations
from tests.encodings.kinds import ONE_OF_EACH_KIND, SIZES
from tools import adoption as tools_adoption

N = 10
NAMES = [entry.name for entry in catalogue() if not entry.variant_of]
ENTRIES = {entry.name: entry for entry in catalogue()}


@cache
def initial(name):
    """What `init` draws of a key, and of three keys at once."""
    init = ENTRIES[name].first_layer(SIZES).init
    keys = jax.random.split(jax.random.key(5), 3)
    return jax.device_get(jax.jit(lambda: (init(jax.random.key(0)), jax.vmap(init)(keys)))())


def setting(name, *, batch=()):
    """An encoding with parameters off their initial values, and content for an attention layer."""
    entry = ENTRIES[name]
    rng = np.random.default_rng(3)
    params = initial(name)[0]
    params = jax.tree.map(lambda x: jax.device_put(x + 0.1 * rng.standard_normal(x.shape)), params)
    heads = (*batch, N, SIZES.num_heads, SIZES.head_dim)
    content = [rng.standard_normal(s) for s in ((*batch, N, SIZES.dim), *[heads] * 3)]
    positions = np.sort(rng.choice(SIZES.length, (*batch, N)), axis=-1).astype(np.int32)
    if entry.coordinates > 1:
        positions = rng.integers(0, 9, (*batch, N, entry.coordinates), dtype=np.int32)
    return entry.first_layer(SIZES), params, content, positions


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


def rounded_hooks(encoding, params, content, positions):
    """Results of hooks for bfloat16, each with that for the same numbers in float32."""
    x, q, k, _ = content
    bound = encoding_at(encoding, params, x, positions)
    outs = []
    for hook, y in ((bound.embed, x), (bound.query, q), (bound.key, k)):
        wide = hook(params, y.astype(jnp.float32), positions)
        outs.append((hook(params, y, positions), wide.astype(jnp.bfloat16)))
    return outs, bound.bias(params, q, k, positions, positions)


STEP = 1e-5  # of finite differences
FROZEN = ("random", "information_optimal", "fourier", "fope")


def cast(tree, dtype):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


@pytest.mark.parametrize("name", NAMES)
def test_transforms_agree_with_differences_and_in_every_dtype(name):
    """Batches, vmap and concrete positions, both modes, float32 and bfloat16, from one program."""
    encoding, params, content, positions = setting(name, batch=(2,))
    run, rng = layer(encoding), np.random.default_rng(4)
    direction = jax.tree.map(lambda x: rng.standard_normal(x.shape), (params, content))

    def loss(params, content):
        return jnp.sum(jnp.sin(run(params, content, positions)))

    # By default XLA computes in float32 what should be rounded to bfloat16.
    @functools.partial(jax.jit, compiler_options={"xla_allow_excess_precision": False})
    def everything(params, content, direction, positions_1):
        at = params, content
        _, forward = jax.jvp(loss, at, direction)
        tables, x = direction
        if name in FROZEN:  # the value moves with a frozen table, the gradient does not
            tables = jax.tree.map(jnp.zeros_like, tables)
        _, unfrozen = jax.jvp(loss, at, (tables, x))

        def moved(t):
            return loss(*jax.tree.map(lambda a, d: a + t * d, at, (tables, x)))

        first = [c[0] for c in content]
        return {
            "whole": run(params, content, positions),
            "mapped": jax.vmap(run, in_axes=(None, 0, 0))(params, content, positions),
            "traced": run(params, [c[1] for c in content], positions_1),
            "narrow": run(*cast((params, first), np.float32), positions[0]),
            "slopes": (forward, jax.grad(loss, argnums=(0, 1))(*at), unfrozen),
            "values": jax.vmap(moved)(jnp.array([STEP, -STEP])),
            "hooks": rounded_hooks(
                encoding, cast(params, np.float32), cast(first, jnp.bfloat16), positions[0]
            ),
        }

    found = jax.device_get(everything(params, content, direction, positions[1]))
    whole = found["whole"]
    np.testing.assert_allclose(found["mapped"], whole, atol=1e-12)
    np.testing.assert_allclose(found["traced"], whole[1], atol=1e-12)
    assert found["narrow"].dtype == np.float32
    np.testing.assert_allclose(found["narrow"], whole[0], atol=2e-5)

    forward, gradient, unfrozen = found["slopes"]
    np.testing.assert_allclose(forward, unfrozen, rtol=1e-9)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    np.testing.assert_allclose(sum(np.vdot(g, d) for g, d in pairs), forward, rtol=1e-9)
    ahead, behind = found["values"]
    np.testing.assert_allclose(unfrozen, (ahead - behind) / (2 * STEP), rtol=2e-5, atol=1e-7)

    hooks, bias = found["hooks"]
    for out, wide in hooks:
        assert out.dtype == jnp.bfloat16
        np.testing.assert_array_equal(out, wide)
    assert bias is None or (bias.dtype == jnp.float32 and bias.ndim == 3)


@pytest.mark.parametrize("name", NAMES)
def test_init_draws_every_table_with_a_key_of_its_own(name):
    """Equal keys give equal ranks, whatever the distributions."""
    init, (one, many) = ENTRIES[name].first_layer(SIZES).init, initial(name)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        assert b.shape == (3, *a.shape)
        assert a.dtype == jnp.float64
    with jax.debug_key_reuse(True):
        jax.make_jaxpr(jax.jit(init))(jax.random.key(0))
    tables = [x for x in map(np.ravel, jax.tree.leaves(many)) if len(x) >= 24 and np.ptp(x) > 0]
    for i, a in enumerate(tables):
        for b in tables[:i]:
            n = min(len(a), len(b))
            ranks = [x[:n].argsort().argsort() for x in (a, b)]
            assert abs(np.corrcoef(*ranks)[0, 1]) < 0.95
    with jax.enable_x64(False):
        shapes = jax.eval_shape(init, jax.random.key(0))
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shapes))


@pytest.mark.parametrize("name", ["alibi", "fox", "rope"])
def test_a_second_call_compiles_nothing(name):
    encoding, params, content, positions = setting(name)
    run = layer(encoding)
    run(params, content, positions)
    with compilations() as compiled:
        run(params, [x + 1 for x in content], positions + 1)
    assert not compiled


# Root mean squares of the tables at first; uniform in ± b is b/√3. DIM, … are of SIZES.
SMALL, THIRD = 0.02, 3**-0.5
SPREADS = {
    "learned": {"table": SMALL},
    "random": {"table": 1.0},
    "t5": {"table": SMALL},
    "cope": {"table": 0.0},
    "fire": {"weight_in": THIRD, "bias_in": THIRD, "weight_out": 32**-0.5 * THIRD},
    "shaw": {"key_table": SMALL, "value_table": SMALL},
    "transformer_xl": {"projection": SMALL, "content_bias": SMALL, "position_bias": SMALL},
    "fox": {"kernel": SMALL, "bias": 0.0},
    "grape_a": {"gate": SMALL, "rate": 0.0},
    # Paths: fan-in of each product, with x of variance 1.
    "path": {
        **{"down": SIZES.dim**-0.5, "up": 32**-0.5, "conv": 3**-0.5},
        **{"kernel": SMALL, "bias": 0.0},
    },
    "carope": {"kernel": SMALL},
    "pope": {"phase": 0.0},
    "ssmax": {"scale": 0.43},
    "deberta": {"key_table": SMALL, "query_table": SMALL},
    "dape": {
        "weight_in": 8**-0.5 * THIRD,
        "bias_in": 8**-0.5 * THIRD,
        "weight_out": 32**-0.5 * THIRD,
    },
    "inkling": {"projection": SIZES.dim**-0.5, "profiles": SMALL},
}


@pytest.mark.parametrize("name", SPREADS)
def test_initial_tables_have_their_published_sizes(name):
    found = {key: np.sqrt(np.mean(initial(name)[0][key] ** 2)) for key in SPREADS[name]}
    assert found == pytest.approx(SPREADS[name], rel=0.3)


@pytest.mark.parametrize("name", ["fox", "path", "rerope", "sliding_window", "shaw"])
def test_chain_with_identity_is_the_encoding(name):
    encoding, params, content, positions = setting(name)
    chained, own = chain(identity(), chain(encoding, identity())), ((), (params, ()))

    @jax.jit
    def run(params, own, content):
        both = [(encoding, params), (chained, own)]
        return [layer(each)(its_params, content, positions) for each, its_params in both]

    np.testing.assert_array_equal(*run(params, own, content))
    for hook in encoding._fields[1:]:
        assert chained.defines(hook) == encoding.defines(hook)


def attended(encoding, params, content, positions, valid):
    """Causal attention of a row whose padding is not valid."""
    x, q, k, v = content
    context = None
    if encoding.defines("context"):
        context, _ = encoding.context(params, x, positions, Rows(valid))
    mask = np.tri(len(q), dtype=bool) & valid
    where = {"q_positions": positions, "k_positions": positions}
    contexts = {"q_context": context, "k_context": context}
    return attend(encoding, params, q, k, v, mask=mask, **where, **contexts)


# Their keys turn or weigh by the head.
PER_HEAD = ("pope", "fope", "carope", "selective_rope")


@pytest.mark.parametrize("name", [*dict.fromkeys([*ONE_OF_EACH_KIND, *PER_HEAD, "cable"])])
def test_grouped_keys_padding_and_later_tokens(name):
    """Groups are repeated keys; what stands in padding counts for nothing, nor do later tokens."""
    encoding, params, (x, q, k, v), positions = setting(name)
    groups, tokens = (SIZES.num_heads if name in PER_HEAD else 2), N - 3
    junk = [1e3 * np.random.default_rng(5).standard_normal(a.shape) for a in (x, q, k, v)]
    padding = np.arange(N) >= tokens

    @jax.jit
    def run(params, content, junk):
        content = [a.at[padding].set(b[padding]) for a, b in zip(content, junk, strict=True)]
        whole = attended(encoding, params, content, positions, ~padding)
        repeats = [1, 1, *[SIZES.num_heads // groups] * 2]
        content = [jnp.repeat(a, r, axis=1) for a, r in zip(content, repeats, strict=True)]
        return whole, *(
            attended(encoding, params, [a[:n] for a in content], positions[:n], np.ones(n, bool))
            for n in (1, tokens)
        )

    content = [x, q, k[:, :groups], v[:, :groups]]
    junk = [b[:, : a.shape[1]] for a, b in zip(content, junk, strict=True)]
    whole, *parts = run(params, jax.device_put(content), junk)
    for part in parts:
        np.testing.assert_allclose(whole[: len(part)], part, atol=1e-11)


# Waves without a common shift, groups and chunks.
NOT_BY_OFFSET = ("fope", "self_extend", "dual_chunk")
SHIFTS = np.array([0, -977, 1, 999_000], np.int32)


@pytest.mark.parametrize(
    "name",
    [
        e.name
        for e in catalogue()
        if e.family not in ("absolute", "orthogonal", "temperature", "masks", "layer_patterns")
        if e.name not in NOT_BY_OFFSET and not e.variant_of
    ],
)
def test_logits_depend_on_offsets_alone(name):
    """Common shifts of whole and of fractional positions change nothing.

    But for FIRE, which on purpose divides by the query's position beyond its threshold of 512.
    """
    encoding, params, content, positions = setting(name)
    encoding = encoding_at(encoding, params, content[0], positions)
    # The two factors of xPos leave the range of float64 beyond 100,000.
    shifts = np.minimum(SHIFTS, 100_000) if name == "xpos" else SHIFTS

    @jax.jit
    @jax.vmap
    def logits(positions):
        where = {"q_positions": positions, "k_positions": positions}
        return encodings.attention_logits(encoding, params, *content[1:3], **where)

    starts = positions, positions + 0.25 * np.arange(N).reshape(N, *[1] * (positions.ndim - 1))
    for start in starts:
        here, *others = np.asarray(logits(start + shifts.reshape(-1, *[1] * start.ndim)))
        for shift, there in zip(shifts[1:], others, strict=True):
            change = np.abs(there - here).max()
            assert change > 1e-3 if name == "fire" and shift > 512 else change < 1e-7


@pytest.mark.parametrize("name", ["alibi", "t5", "kerple_power", "fire", "shaw", "transformer_xl"])
def test_biases_have_derivatives_by_positions(name):
    """Also where a query and a key are at the same position."""
    encoding, params, (_, q, k, _), _ = setting(name)
    i = np.arange(N) + np.linspace(0.1, 0.6, N)  # no offset is near a whole number

    @jax.jit
    def total(i, j):
        return jnp.sum(jnp.sin(encoding.bias(params, q, k, i, j)))

    check_grads(total, (i, i[::-1] + 0.05), order=1, modes=("rev",), eps=1e-5)
    for gradient in jax.grad(total, argnums=(0, 1))(i, i):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_stress_can_be_asked_of_products_and_biases_of_positions(name):
    entry = ENTRIES[name]
    encoding, params, _, _ = setting(name)
    if entry.family != "layer_patterns":
        assert bool(entry.vectors) == encoding.defines("vectors")
    positions = np.repeat(np.arange(N, dtype=np.int32)[:, None], entry.coordinates, 1)
    positions = positions[:, 0] if entry.coordinates == 1 else positions
    heads = {"num_heads": SIZES.num_heads, "head_dim": SIZES.head_dim}
    if encoding.defines("context") or encoding.defines("products"):
        with pytest.raises(ValueError, match="pass"):
            encoding_distances(encoding, params, positions, **heads)
        return
    shapes = jax.eval_shape(lambda p: encoding_distances(encoding, p, positions, **heads), params)
    assert shapes.values.shape == (N, N)


# What follows from each definition, and what the literature says where it says something: position
# information, where a gradient goes because of the encoding, and positions beyond the length.
EXPECTED = {
    "none": ("–", (), "constant"),
    "sinusoidal": ("both", (), "told apart"),
    "learned": ("absolute", ("table",), "undefined"),
    "legendre_clipped": ("absolute", (), "constant"),
    "cosine": ("absolute", (), "repeats"),
    "axial_rope": ("relative", ("queries", "keys"), "told apart"),
    "alibi": ("relative", (), "told apart"),
    "t5": ("relative", ("table",), "constant"),
    "fire": (
        "both",
        ("bias_in", "bias_out", "log_c", "log_threshold", "weight_in", "weight_out"),
        "told apart",
    ),
    "shaw": ("relative", ("key_table", "value_table", "queries", "weights"), "constant"),
    "fox": ("relative", ("bias", "kernel"), "told apart"),
    "ssmax": ("absolute", ("scale", "queries"), "constant"),
    "sliding_window": ("relative", (), "constant"),
    "llama4": ("absolute", ("queries", "keys"), "constant"),
    "dual_chunk": ("absolute", ("queries", "keys"), "repeats"),
}
PAGE = Path(__file__).parents[2] / "docs" / "encodings.txt"


@cache
def computed(name):
    # Beyond FIRE's and T5's own thresholds, so that these show.
    sizes = EncodingSizes(dim=32, num_heads=2, head_dim=16, length=600)
    return encodings.encoding_properties(ENTRIES[name], sizes=sizes)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_computed_is_what_the_definitions_say(name):
    found = computed(name)
    kind = {(True, True): "both", (True, False): "absolute", (False, True): "relative"}
    position = kind.get((found.absolute, found.relative), "–")
    assert (position, found.gradient, found.beyond) == EXPECTED[name]
    assert (found.flops > 0) == (found.bytes > 0) == (name != "none")
    counted = {"learned": 600 * 32, "t5": 32 * 2, "shaw": 2 * 33 * 16, "axial_rope": 0}
    assert found.trainable == counted.get(name, found.trainable)


def test_the_page_has_a_row_for_each_encoding():
    rows = PAGE.read_text("utf-8").splitlines()
    header, _, *body = ([c.strip() for c in row.split("|")[1:-1]] for row in rows)
    shown = {row[0].strip("`"): dict(zip(header, row, strict=True)) for row in body}
    assert [*shown] == [*ENTRIES]
    for name, (position, _, beyond) in EXPECTED.items():
        assert (shown[name]["position"], shown[name]["beyond"]) == (position, beyond)


def test_adoption_is_of_encodings_of_the_catalogue():
    adoption = tomllib.loads((files("jaxpe.encodings") / "adoption.toml").read_text("utf-8"))
    assert adoption.keys() == tools_adoption.PATHS.keys()
    for program in adoption.values():
        assert program["counts"].keys() == tools_adoption.RULES.keys() <= {*ENTRIES}
    sources = {"llama": "apply_rotary_pos_emb(q)", "bloom": "build_alibi_tensor()"}
    found = tools_adoption.matches(sources)
    assert (found["rope"], found["alibi"], found["fire"]) == (["llama"], ["bloom"], [])
