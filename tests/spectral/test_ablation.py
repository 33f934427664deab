"""Ablation of heads, of a small classifier, and the index of how concentrated they are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings, nn, spectral
from jaxpe.spectral.ablation import HeadSums

LAYERS, HEADS, WIDTH, N = 2, 3, 4, 7


@pytest.fixture(scope="module")
def model():
    config = nn.TransformerConfig(
        vocab_size=11, dim=12, num_layers=LAYERS, num_heads=HEADS, init_scale=0.6, scan=True
    )
    encoder = nn.Encoder(config, encoding=encodings.rope(head_dim=WIDTH), rngs=nnx.Rngs(0))
    return nn.functionalize(nn.Classifier(encoder, num_classes=5, pooling="mean", rngs=nnx.Rngs(1)))


RNG = np.random.default_rng(0)
BATCH = {"ids": RNG.integers(0, 11, (6, N)), "mask": np.arange(N) < RNG.integers(3, 8, (6, 1))}


@pytest.fixture(scope="module")
def run(model):
    """Logits and heads of parameters, gates and fills."""
    apply, _ = model

    @jax.jit
    def run(params, gates, fill):
        out = apply(params, **BATCH, gates=gates, gate_fill=fill, trace=True)
        return out.logits, out.transformer.heads

    return run


@pytest.fixture(scope="module")
def ablate(run):
    """Ablated heads of parameters and a fill."""
    ablate = partial(spectral.ablate_heads, layers=LAYERS, heads=HEADS)
    return jax.jit(lambda params, fill: ablate(lambda gates: run(params, gates, fill)[0]))


ONES, NONE = np.ones((LAYERS, HEADS)), np.zeros((LAYERS, HEADS, WIDTH), np.float32)


def without(layer, head):
    gates = ONES.copy()
    gates[layer, head] = 0
    return gates


def changed(params, *path, where, to):
    """A copy of the parameters with some entries of one set."""
    copy = jax.tree.map(lambda x: x, params)
    leaf = copy["encoder"]["layers"]["attention"]
    for name in path:
        leaf = leaf[name]
    leaf.set_value(leaf.get_value().at[where].set(to))
    return copy


def test_an_ablated_head_is_a_model_without_its_rows(model, run, ablate):
    """One pass is head by head."""
    _, params = model
    found = ablate(params, NONE)
    np.testing.assert_allclose(found.score, run(params, ONES, NONE)[0], atol=1e-5)
    np.testing.assert_allclose(found.drop, found.score[None, None] - found.ablated, atol=1e-6)
    for layer, head in np.ndindex(LAYERS, HEADS):
        rows = slice(head * WIDTH, (head + 1) * WIDTH)
        cut = changed(params, "output", "kernel", where=(layer, rows), to=0)
        expected = run(cut, ONES, NONE)[0]
        np.testing.assert_allclose(found.ablated[layer, head], expected, atol=1e-5)
        assert np.abs(found.drop[layer, head]).max() > 1e-3
    linear = lambda gates: jnp.sum(gates * jnp.arange(6.0).reshape(2, 3))  # noqa: E731
    parts = spectral.ablate_heads(linear, layers=2, heads=3, batch_size=4)
    np.testing.assert_allclose(parts.drop, np.arange(6.0).reshape(2, 3))


def test_sums_of_heads(model, run):
    traced = np.asarray(run(model[1], ONES, NONE)[1])
    mask = BATCH["mask"]
    assert traced.shape == (LAYERS, 6, N, HEADS, WIDTH)
    expected = traced[:, mask].mean(axis=1)
    np.testing.assert_allclose(spectral.sum_heads(traced, mask).mean, expected, atol=1e-6)
    parts = [spectral.sum_heads(traced[:, part], mask[part]) for part in (slice(2), slice(2, 6))]
    np.testing.assert_allclose((parts[0] + parts[1]).mean, expected, atol=1e-6)
    placed = spectral.sum_heads(traced, mask, by_position=True)
    np.testing.assert_array_equal(placed.count, mask.sum(axis=0))
    third = traced[:, mask[:, 2], 2].mean(axis=1)
    np.testing.assert_allclose(placed.mean[:, 2], third, atol=1e-6)


def test_mean_ablation_of_a_constant_head_changes_nothing(model, run, ablate):
    _, params = model
    constant = changed(params, "value", "kernel", where=(0, slice(None), slice(WIDTH)), to=0)
    bias = np.arange(1, 1 + WIDTH, dtype=np.float32)
    constant = changed(constant, "value", "bias", where=(0, slice(WIDTH)), to=bias)
    logits, heads = run(constant, ONES, NONE)
    mean = spectral.sum_heads(heads, BATCH["mask"]).mean
    np.testing.assert_allclose(mean[0, 0], bias, atol=1e-5)
    filled, zeroed = ablate(constant, mean), ablate(constant, NONE)
    np.testing.assert_allclose(filled.score, logits, atol=1e-5)
    np.testing.assert_allclose(filled.ablated[0, 0], logits, atol=1e-5)
    assert np.abs(zeroed.ablated[0, 0] - logits).max() > 1e-3
    assert np.abs(filled.ablated[1] - zeroed.ablated[1]).max() > 1e-3


def test_deposit_in_one_head_and_in_all():
    drop = np.array([
        [[0, 0], [0.6, 0]], [[0.1, 0.1], [0.1, 0.1]], [[-0.2, -0.3], [-0.05, -0.1]],
        [[0.5, 0.25], [0.25, -1.0]], [[np.nan, 0.1], [0.1, 0.1]],
    ])  # fmt: skip
    found = spectral.deposit(drop)
    nan, half = np.nan, 1.5 * np.log(2) / np.log(4)
    np.testing.assert_allclose(found.largest_share, [1, 0.25, 0, 0.5, nan], atol=1e-7)
    np.testing.assert_allclose(found.entropy, [0, 1, 1, half, nan], atol=1e-7)
    np.testing.assert_allclose(found.total_drop, [0.6, 0.4, 0, 1, nan], atol=1e-7)
    np.testing.assert_allclose(found.largest_drop, [0.6, 0.1, -0.05, 0.5, nan])
    assert (found.layer[:4].tolist(), found.head[:4].tolist()) == ([1, 0, 1, 0], [0, 0, 0, 0])
    slope = jax.grad(lambda d: spectral.deposit(d).entropy)(drop[0])
    assert np.isfinite(slope).all()
    assert spectral.deposit(np.ones((1, 1))).entropy == 0  # one head has it all


def test_deposit_leaves_out_noise():
    drop = np.array([[0.5, 0.02], [0.01, -0.3]])
    assert spectral.deposit(drop).largest_share < 0.95
    assert spectral.deposit(drop, noise=0.02).largest_share == 1  # a drop as large as the noise


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sums_of_narrow_heads_are_wide(dtype):
    sums = spectral.sum_heads(jnp.full((1, 64, 64, 1, 2), 3, dtype))
    assert sums.total.dtype == jnp.float32
    np.testing.assert_array_equal(sum([sums] * 20).mean, np.full((1, 1, 2), 3.0))


def test_counts_of_tokens_do_not_wrap():
    many = HeadSums(jnp.ones((1, 2, 3)), jnp.int32(2**30))
    with pytest.raises(OverflowError, match="2147483648"):
        many + many
    assert jax.jit(lambda a, b: (a + b).count)(many, many) == 2**31 - 1


def test_bad_input():
    calls = [
        (lambda: spectral.ablate_heads(lambda gates: jnp.ones(()), layers=2, heads=3), "gates"),
        (lambda: spectral.ablate_heads(jnp.sum, layers=0, heads=2), "layers"),
        (lambda: spectral.sum_heads(jnp.ones(3)), "heads"),
        (lambda: spectral.deposit(np.ones(3)), "drop"),
        (lambda: spectral.sum_heads(jnp.ones((2, 4, 3, 2, 2)), np.ones(5, bool)), "broadcast"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
