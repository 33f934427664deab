"""Fused attention against attention that stores all pairs, and what each can compute."""

import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import EncodingSizes, attend, catalogue, encodings
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


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("encoding", ["rope", "alibi", "sliding_window"])
def test_fused_attention_equals_dense(name, encoding, short_types):
    """With grouped queries."""
    sizes = EncodingSizes(dim=HEADS * WIDTH, num_heads=HEADS, head_dim=WIDTH, length=N)
    layer = encodings.resolve(encoding).first_layer(sizes)
    assert_equal_to_dense("xla", layer, qkv(), (INDEX, INDEX), mask=MASKS[name])


def implementation_table():
    """Encodings of the catalogue by what each implementation computes of them, in Markdown."""
    sizes = EncodingSizes(dim=32, num_heads=4, head_dim=8, length=24)
    columns = ("dense",), ("blocks",), ("xla", "cudnn")
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
