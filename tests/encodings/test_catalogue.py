"""Laws over the whole catalogue, and what is computed about it against the definitions."""

import functools
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import EncodingSizes, attend, catalogue, chain, identity
from jaxpe.encodings import encoding_distances
from jaxpe.encodings.base import Rows, encoding_at
from tests.compilation import compilations, counted
from tests.encodings.kinds import ONE_OF_EACH_KIND, SIZES
from tools import adoption as tools_adoption

N = 10
NAMES = [entry.name for entry in catalogue() if not entry.variant_of]
ENTRIES = {entry.name: entry for entry in catalogue()}


@cache
def initial(name):
    """What `init` draws without jit."""
    return jax.device_get(ENTRIES[name].first_layer(SIZES).init(jax.random.key(0)))


def setting(name, *, dtype=np.float64, batch=()):
    """An encoding with parameters off their initial values, and content for an attention layer."""
    entry = ENTRIES[name]
    encoding = entry.first_layer(SIZES)
    rng = np.random.default_rng(3)
    params = jax.tree.map(
        lambda x: jax.device_put((x + 0.1 * rng.standard_normal(x.shape)).astype(dtype)),
        initial(name),
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
    """The layer of an encoding as one program, and a list as long as it was traced.

    Its results: of a batch, vmapped, and of the same numbers in float32.
    """
    run = layer(ENTRIES[name].first_layer(SIZES))

    def each(wide, narrow, positions):
        mapped = jax.vmap(run, in_axes=(None, 0, 0))
        return run(*wide, positions), mapped(*wide, positions), run(*narrow, positions)

    once, traced = counted(each)
    return jax.jit(once), traced


def rounded(arrays):
    return jax.tree.map(np.float32, arrays)


@pytest.mark.parametrize("name", NAMES)
def test_eager_jit_vmap_and_batches_agree(name):
    encoding, params, content, positions = setting(name, batch=(2,))
    run, (program, traced) = layer(encoding), jitted(name)
    wide = params, content
    whole, mapped, _ = program(wide, rounded(wide), positions)
    before = len(traced)
    np.testing.assert_allclose(mapped, whole, atol=1e-12)
    alone = run(params, [x[1] for x in content], positions[1])
    np.testing.assert_allclose(alone, np.asarray(whole)[1], atol=1e-12)
    with compilations() as compiled:
        run(params, [x[0] for x in content], positions[0])
    assert not compiled or name == "path"  # it scans over a new function in each call
    moved = params, [x + 1 for x in content]
    program(moved, rounded(moved), positions + 1 if name in FAR else positions)
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
    steps = [jax.tree.map(lambda x, d, s=s: np.asarray(x) + s * d, at, direction) for s in (h, -h)]
    ahead, behind = (looked_at(step, direction)[0] for step in steps)
    np.testing.assert_allclose(forward, (ahead - behind) / (2 * h), rtol=2e-5, atol=1e-7)


FROZEN = ("random", "information_optimal", "fourier", "fope")


@pytest.mark.parametrize("name", NAMES)
def test_init_under_jit_and_vmap(name):
    init, eager = ENTRIES[name].first_layer(SIZES).init, initial(name)
    keys = jax.random.split(jax.random.key(5), 3)
    with compilations() as compiled:
        init(jax.random.key(1))
    assert not compiled
    seeds, jitted = jax.jit(lambda keys: (jax.vmap(init)(keys), init(jax.random.key(0))))(keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), eager, jitted)
    for one, many in zip(jax.tree.leaves(eager), jax.tree.leaves(seeds), strict=True):
        assert many.shape == (3, *one.shape)
        assert one.dtype == jnp.float64
    check_draws(init, [x for x in map(np.ravel, jax.tree.leaves(seeds)) if len(x) >= 24])
    with jax.enable_x64(False):
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(jax.eval_shape(init, keys[0])))


def check_draws(init, tables):
    """Every table has a key of its own: equal keys give equal ranks, whatever the distributions."""
    with jax.debug_key_reuse(True):
        jax.make_jaxpr(jax.jit(init))(jax.random.key(0))
    drawn = [x for x in tables if np.ptp(x) > 0]
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            n = min(len(a), len(b))
            ranks = [x[:n].argsort().argsort() for x in (a, b)]
            assert abs(np.corrcoef(*ranks)[0, 1]) < 0.95


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
    found = {key: np.sqrt(np.mean(initial(name)[key] ** 2)) for key in SPREADS[name]}
    assert found == pytest.approx(SPREADS[name], rel=0.3)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name):
    """Inputs keep theirs; what is sensitive is computed in float32 from the very same numbers."""
    encoding, params, content, positions = setting(name, dtype=np.float32)
    content = [c.astype(jnp.bfloat16) for c in content]

    # By default XLA computes in float32 what should be rounded to bfloat16.
    @functools.partial(jax.jit, compiler_options={"xla_allow_excess_precision": False})
    def hooks(x, q, k, v):
        bound = encoding_at(encoding, params, x, positions)
        outs = []
        for hook, y in ((bound.embed, x), (bound.query, q), (bound.key, k)):
            wide = hook(params, y.astype(jnp.float32), positions)
            outs.append((hook(params, y, positions), wide.astype(jnp.bfloat16)))
        return outs, bound.bias(params, q, k, positions, positions)

    outs, bias = hooks(*content)
    for out, wide in outs:
        assert out.dtype == jnp.bfloat16
        np.testing.assert_array_equal(out, wide)
    assert bias is None or (bias.dtype == jnp.float32 and bias.ndim == content[1].ndim)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_close_to_float64(name):
    _, params, content, positions = setting(name, batch=(2,))
    wide = params, content
    exact, _, narrow = jitted(name)[0](wide, rounded(wide), positions)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, exact, atol=2e-5)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_chain_with_identity_is_the_encoding(name):
    encoding, params, content, positions = setting(name)
    chained, own = chain(identity(), chain(encoding, identity())), ((), (params, ()))

    @jax.jit
    def run(params, own, content):
        both = [(encoding, params), (chained, own)]
        outs = [layer(each)(its_params, content, positions) for each, its_params in both]
        if encoding.defines("vectors"):
            outs += [each.vectors(its_params, positions) for each, its_params in both]
        return outs

    outs = run(params, own, content)
    for alone, in_chain in zip(outs[::2], outs[1::2], strict=True):
        np.testing.assert_array_equal(in_chain, alone)
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
PER_HEAD = ("pope", "fope", "selective_rope", "carope")


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


# Waves without a common shift, groups and chunks.
NOT_BY_OFFSET = ("fope", "self_extend", "dual_chunk")


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
        change = np.abs(np.asarray(logits(start)) - logits(start + shift)).max()
        assert change > 1e-3 if name == "fire" and shift > 512 else change < 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_vectors_or_induced_distances_give_a_stress(name):
    """Stress can be asked of every encoding whose logits are products and biases of positions."""
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
    delta = encoding_distances(encoding, params, positions, **heads)
    assert np.isfinite(delta.values).all()
    if encoding.defines("vectors") and not encoding.defines("embed"):
        encoding_distances(encoding, params, positions, by="logits", **heads)
    with compilations() as compiled:
        encoding_distances(encoding, params, positions + 1, **heads)
    assert not compiled
    line = np.abs(np.arange(N)[:, None] - np.arange(N)[None, :]).astype(float)
    fit = float(jaxpe.scaled_stress(delta, line).stress)
    # Scaled queries look at keys alike, whatever their positions; masks are no part of logits.
    alike = name == "none" or entry.family in ("temperature", "masks")
    assert fit == 1.0 if alike else 0 <= fit < 1
    if name == "alibi":
        assert fit < 1e-12


# What follows from each definition, and what the literature says where it says something: position
# information, where a gradient goes because of the encoding, and positions beyond the length.
EXPECTED = {
    "none": ("", (), "constant"),
    "sinusoidal": ("absolute relative", (), "told apart"),
    "learned": ("absolute", ("table",), "undefined"),
    "random": ("absolute", (), "undefined"),
    "fourier": ("absolute relative", (), "told apart"),
    "information_optimal": ("absolute", (), "undefined"),
    "low_rank": ("absolute", ("A", "B"), "undefined"),
    "legendre": ("absolute", (), "told apart"),
    "legendre_clipped": ("absolute", (), "constant"),
    "legendre_log": ("absolute", (), "constant"),
    "chebyshev": ("absolute", (), "constant"),
    "cosine": ("absolute", (), "repeats"),
    "wavelet": ("absolute", (), "told apart"),
    "spherical_harmonics": ("absolute", (), "told apart"),
    "log_position": ("absolute", (), "told apart"),
    "sinusoidal_log": ("absolute", (), "told apart"),
    "rope": ("relative", ("queries", "keys"), "told apart"),
    "rope_partial": ("relative", ("queries", "keys"), "told apart"),
    "xpos": ("relative", ("queries", "keys"), "told apart"),
    "axial_rope": ("relative", ("queries", "keys"), "told apart"),
    "mrope": ("relative", ("queries", "keys"), "told apart"),
    "alibi": ("relative", (), "told apart"),
    "t5": ("relative", ("table",), "constant"),
    "kerple_log": ("relative", ("log_r1", "log_r2"), "told apart"),
    "kerple_power": ("relative", ("log_r1", "logit_r2"), "told apart"),
    "fire": (
        "absolute relative",
        ("bias_in", "bias_out", "log_c", "log_threshold", "weight_in", "weight_out"),
        "told apart",
    ),
    "cope": ("relative", ("table", "queries", "keys"), "told apart"),
    "shaw": ("relative", ("key_table", "value_table", "queries", "weights"), "constant"),
    "transformer_xl": (
        "relative",
        ("content_bias", "position_bias", "projection", "queries", "keys"),
        "told apart",
    ),
    "fox": ("relative", ("bias", "kernel"), "told apart"),
    "cable": ("relative", ("bias", "kernel"), "told apart"),
    "grape_a": ("relative", ("gate", "rate", "keys"), "told apart"),
    "grape_m": ("relative", ("log_frequencies", "queries", "keys"), "told apart"),
    "selective_rope": ("relative", ("conv", "projection", "queries", "keys"), "told apart"),
    "carope": ("relative", ("kernel", "queries", "keys"), "told apart"),
    "path": (
        "relative",
        ("bias", "conv", "down", "kernel", "up", "queries", "keys"),
        "told apart",  # far products die out, with a reach below T
    ),
    "pope": ("relative", ("phase", "queries", "keys"), "told apart"),
    "fope": ("absolute", ("queries", "keys"), "told apart"),
    "ssmax": ("absolute", ("scale", "queries"), "constant"),
    "llama4_scaling": ("absolute", ("queries",), "constant"),
    "ministral_scaling": ("absolute", ("queries",), "constant"),
    "sliding_window": ("relative", (), "constant"),
    "attention_chunks": ("absolute", (), "constant"),
    "smollm3": ("relative", ("queries", "keys"), "told apart"),
    "llama4": ("absolute", ("queries", "keys"), "constant"),
    "gemma3": ("relative", ("queries", "keys"), "constant"),
    "rerope": ("relative", ("queries", "keys"), "constant"),
    "self_extend": ("absolute", ("queries", "keys"), "told apart"),
    "dual_chunk": ("absolute", ("queries", "keys"), "repeats"),
    "deberta": ("relative", ("key_table", "query_table", "queries", "keys"), "constant"),
    "dape": (
        "relative",
        (
            *("base.log_r1", "base.log_r2", "bias_in", "bias_out", "weight_in", "weight_out"),
            *("queries", "keys"),
        ),
        "told apart",
    ),
    "inkling": ("relative", ("profiles", "projection"), "told apart"),
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
    params = {"table": np.random.default_rng(1).standard_normal((6, 3))}
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 4, 5, 3))
    positions = rng.integers(0, 5, (4, 5), dtype=np.int32)

    def loss(params, x):
        return jnp.sum(weight * jnp.sin(encoding.embed(params, x, positions)))

    to_table, to_x = jax.jit(jax.grad(loss, argnums=(0, 1)))(params, x)
    expected = np.zeros((6, 3))
    np.add.at(expected, positions, np.asarray(to_x))
    np.testing.assert_allclose(to_table["table"], expected, atol=1e-12)
    assert not expected[5].any()


PAGE = Path(__file__).parents[2] / "docs" / "encodings.md"


def test_the_page_shows_what_is_computed():
    """Its table is the output of `jaxpe encodings --about overview --form markdown`,
    its two tables joined: a few rows.

    Another version of the compiler may change costs a little.
    """
    page = PAGE.read_text("utf-8")
    shown = rows(re.search(r"^\| encoding \| family .*?(?=\n\n)", page, re.M | re.S).group())
    assert [*shown] == [f"`{name}`" for name in ENTRIES]
    computed = [rows(table) for table in printed_tables(["none", "rope", "t5"])]
    for name in computed[0]:
        computed_row = computed[0][name] | computed[1][name] | {"encoding": f"`{name}`"}
        assert {*computed_row} == {*shown[f"`{name}`"]}
        for column, cell in computed_row.items():
            if column in ("FLOPs", "bytes") and cell[0].isdigit():
                assert number(cell) == pytest.approx(number(shown[f"`{name}`"][column]), rel=0.05)
            else:
                assert cell == shown[f"`{name}`"][column]


def test_adoption_is_of_encodings_of_the_catalogue_and_of_the_versions_that_the_page_names():
    adoption = tomllib.loads((files("jaxpe.encodings") / "adoption.toml").read_text("utf-8"))
    assert adoption.keys() == tools_adoption.PATHS.keys()
    for program in adoption.values():
        assert program["counts"].keys() == tools_adoption.RULES.keys() <= {*ENTRIES}
        assert f"{program['version']}, of {program['models']}" in PAGE.read_text("utf-8")
    assert "rope_yarn" not in adoption["vllm"]["counts"]  # a checkpoint chooses it
    assert [program["counts"]["fope"] for program in adoption.values()] == [0, 1, 1]
    sources = {"llama": "apply_rotary_pos_emb(q)", "bloom": "build_alibi_tensor()"}
    found = tools_adoption.matches(sources)
    assert (found["rope"], found["alibi"], found["fire"]) == (["llama"], ["bloom"], [])


def rows(table):
    """Rows of a Markdown table by name, each a dictionary by column."""
    header, _, *body = ([c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines())
    return {row[0]: dict(zip(header, row, strict=True)) for row in body}


def number(cell):
    return float(cell.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(cell[-1], 1)


def printed_tables(names):
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
    return re.split(r"\n(?=\| encoding )", done.stdout.strip())
