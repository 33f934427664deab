"""Kernels for accelerators against attention that stores all pairs, and what each can compute."""

import importlib
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe import EncodingSizes, attend, catalogue, chain, encodings
from jaxpe.encodings import AttentionMask
from jaxpe.encodings.implementations import lacking

PAGE = Path(__file__).parents[2] / "docs" / "long-sequences.md"
N, HEADS, WIDTH = 150, 4, 8
INDEX = np.arange(N)
PARTS = INDEX // 40
VALID = np.array([INDEX >= 3, INDEX < 140])
MASKS = {
    "none": None,
    "causal": AttentionMask(INDEX, INDEX),
    "causal, segments and padding": AttentionMask(INDEX, INDEX, PARTS, PARTS, VALID),
    "segments without keys": AttentionMask(q_segments=PARTS, k_segments=PARTS + 1),
}


@pytest.fixture
def short_types():
    """Numbers of 32 bits, as accelerators have them."""
    with jax.enable_x64(False):
        yield


def qkv(n_q=N, n_k=N, groups=2):
    rng = np.random.default_rng(0)
    shapes = ((2, n_q, HEADS, WIDTH), (2, n_k, groups, WIDTH), (2, n_k, groups, WIDTH))
    return tuple(jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes)


def values_and_gradients(implementation, encoding, arrays, positions, **options):
    """Outputs, and gradients of a projection of them, by all arrays."""
    i, j = positions

    def project(arrays):
        q, k, v, *sink = arrays
        more = {"sink": sink[0]} if sink else {}
        out = attend(
            encoding, encoding.init(jax.random.key(0)), q, k, v, q_positions=i, k_positions=j,
            implementation=implementation, **more, **options,
        )  # fmt: skip
        return jnp.sum(out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)), out

    (_, out), gradients = jax.jit(jax.value_and_grad(project, has_aux=True))(arrays)
    return out, gradients


def assert_equal_to_dense(implementation, encoding, arrays, positions, **options):
    run = partial(
        values_and_gradients, encoding=encoding, arrays=arrays, positions=positions, **options
    )
    for out, wanted in zip(*map(jax.tree.leaves, (run(implementation), run("dense"))), strict=True):
        np.testing.assert_allclose(out, wanted, atol=5e-6)


# A causal mask is a part of the last but one.
@pytest.mark.parametrize("name", ["causal, segments and padding", "segments without keys"])
def test_splash_equals_dense(name, short_types):
    """With RoPE, grouped queries, a soft cap and a sink; lengths that blocks do not divide."""
    rope, arrays = jaxpe.rope(head_dim=WIDTH), (*qkv(), jnp.arange(HEADS, dtype=jnp.float32))
    options = {"cap": 2.0, "mask": MASKS[name], "block_size": 128}
    assert_equal_to_dense("splash", rope, arrays, (INDEX, INDEX), **options)


def test_splash_of_the_last_queries_of_a_cache(short_types):
    """Without a sink, where some queries have no key, and without options."""
    i = INDEX[-20:]
    arrays, plain = qkv(n_q=20), jaxpe.identity()
    mask = AttentionMask(i, INDEX, k_valid=INDEX > 135)
    assert_equal_to_dense("splash", plain, arrays, (i, INDEX), mask=mask)
    out = attend(
        plain, (), *arrays, q_positions=i, k_positions=INDEX, mask=mask, implementation="splash"
    )
    assert (np.abs(out[0]).max(axis=(1, 2)) == 0).tolist() == (i <= 135).tolist()


def test_splash_of_later_keys_of_no_rows_and_of_16_bits(short_types):
    run = partial(attend, jaxpe.identity(), (), q_positions=INDEX, k_positions=INDEX)
    later = AttentionMask(INDEX, INDEX + N)
    assert not np.any(run(*qkv(), mask=later, implementation="splash"))
    halves = run(*(x.astype(jnp.bfloat16) for x in qkv()), implementation="splash")
    np.testing.assert_allclose(
        halves.astype(jnp.float32), run(*qkv(), implementation="dense"), atol=0.03
    )
    none = run(*(x[:0] for x in qkv()), implementation="splash")
    assert none.shape == (0, N, HEADS, WIDTH)


@pytest.mark.skipif(find_spec("tokamax") is None, reason="the package tokamax is not installed")
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("encoding", ["rope", "alibi", "sliding_window"])
def test_tokamax_equals_dense(name, encoding, short_types):
    """With grouped queries and a soft cap."""
    importlib.import_module("absl.flags").FLAGS.mark_as_parsed()  # tokamax would parse pytest's
    sizes = EncodingSizes(dim=HEADS * WIDTH, num_heads=HEADS, head_dim=WIDTH, length=N)
    options = {"cap": 2.0, "mask": MASKS[name]}
    layer = encodings.resolve(encoding).first_layer(sizes)
    assert_equal_to_dense("tokamax", layer, qkv(), (INDEX, INDEX), **options)


@pytest.mark.skipif(find_spec("tokamax") is not None, reason="the package tokamax is installed")
def test_an_absent_package_is_named(short_types):
    with pytest.raises(ImportError, match="pip install tokamax"):
        attend(
            jaxpe.identity(), (), *qkv(), q_positions=INDEX, k_positions=INDEX,
            implementation="tokamax",
        )  # fmt: skip


def test_what_cannot_be_computed_is_named(short_types):
    positions = {"q_positions": INDEX, "k_positions": INDEX}
    run = partial(attend, jaxpe.identity(), (), *qkv(), **positions, implementation="splash")
    for mask in (lambda i, j: j <= i, np.ones((N, N), bool)):
        with pytest.raises(ValueError, match="other than an `AttentionMask`"):
            run(mask=mask)
    with pytest.raises(ValueError, match="an order of tokens that"):
        run(mask=AttentionMask(INDEX[::-1], INDEX))
    with pytest.raises(ValueError, match="an order of tokens that"):
        jax.jit(lambda i: run(mask=AttentionMask(i, i)))(INDEX)
    with pytest.raises(ValueError, match="dropout"):
        run(dropout_rate=0.1, dropout_key=jax.random.key(0))
    window = chain(jaxpe.rope(head_dim=WIDTH), encodings.sliding_window(size=4))
    with pytest.raises(ValueError, match="a mask that the encoding makes"):
        attend(window, ((), ()), *qkv(), **positions, implementation="splash")
    with pytest.raises(ValueError, match="a sink"):
        run(sink=np.ones(HEADS), implementation="tokamax")
    with jax.enable_x64(True), pytest.raises(ValueError, match="jax_enable_x64"):
        run()


def implementation_table():
    """Encodings of the catalogue by what each implementation computes of them, in Markdown."""
    sizes = EncodingSizes(dim=32, num_heads=4, head_dim=8, length=24)
    columns = ("dense",), ("blocks",), ("xla", "cudnn", "tokamax"), ("splash",)
    rows = {}
    for entry in catalogue():
        encoding = entry.first_layer(sizes)
        cells = []
        for names in columns:
            (lack, *others) = (lacking(name, encoding) for name in names)
            assert others == [lack] * len(others)
            cells.append("yes" if lack is None else f"no: {lack}")
        rows.setdefault(tuple(cells), []).append(f"`{entry.name}`")
    lines = [["encodings", *map(", ".join, columns)], ["---"] * (1 + len(columns))]
    lines += [[", ".join(names), *cells] for cells, names in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def test_the_page_says_which_implementation_computes_which_encoding():
    text = PAGE.read_text("utf-8")
    (table,) = re.findall(r"<!-- implementations -->\n+(.*?)\n+<!-- end -->", text, re.DOTALL)
    assert table == implementation_table()
