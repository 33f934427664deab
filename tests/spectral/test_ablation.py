"""Ablation of heads, of a small classifier, and the index of how concentrated they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
from jaxpe import nn, spectral

LAYERS, HEADS, WIDTH, N = 2, 3, 4, 7


def one_head(layer, head):
    return np.eye(LAYERS * HEADS)[layer * HEADS + head].reshape(LAYERS, HEADS)


@pytest.fixture(scope="module")
def model():
    config = nn.TransformerConfig(
        vocab_size=11, dim=12, num_layers=LAYERS, num_heads=HEADS, init_scale=0.6, scan=True
    )
    encoder = nn.Encoder(config, encoding=jaxpe.rope(head_dim=WIDTH), rngs=nnx.Rngs(0))
    return nn.functionalize(nn.Classifier(encoder, num_classes=5, pooling="mean", rngs=nnx.Rngs(1)))


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    return {"ids": rng.integers(0, 11, (6, N)), "mask": np.arange(N) < rng.integers(3, 8, (6, 1))}


@pytest.fixture(scope="module")
def scored(model, batch):
    apply, params = model
    return jax.jit(
        lambda gates, fill=None: apply(params, **batch, gates=gates, gate_fill=fill).logits
    )


def test_one_pass_is_head_by_head(scored):
    found = jax.jit(lambda: spectral.ablate_heads(scored, layers=LAYERS, heads=HEADS))()
    assert found.drop.shape == (LAYERS, HEADS, 6, 5)
    np.testing.assert_allclose(found.score, scored(jnp.ones((LAYERS, HEADS))), atol=1e-5)
    for layer in range(LAYERS):
        for head in range(HEADS):
            gates = np.ones((LAYERS, HEADS)) - one_head(layer, head)
            np.testing.assert_allclose(found.ablated[layer, head], scored(gates), atol=1e-5)
            assert np.abs(found.drop[layer, head]).max() > 1e-3
    slow = spectral.ablate_heads(scored, layers=LAYERS, heads=HEADS, batch_size=4)
    np.testing.assert_allclose(slow.ablated, found.ablated, atol=1e-5)


def test_an_ablated_head_is_a_model_without_its_rows(model, batch, scored):
    apply, params = model
    layer, head = 1, 2
    rows = slice(head * WIDTH, (head + 1) * WIDTH)
    without = jax.tree.map(lambda x: x, params)
    attention = without["encoder"]["layers"]["attention"]
    for name in ("kernel", "bias"):
        value = attention["value"][name]
        value.set_value(value.get_value().at[layer, ..., rows].set(0))
    cut = jax.jit(apply)(without, **batch).logits
    gated = scored(np.ones((LAYERS, HEADS)) - one_head(layer, head))
    np.testing.assert_allclose(gated, cut, atol=1e-5)
    output = jax.tree.map(lambda x: x, params)
    kernel = output["encoder"]["layers"]["attention"]["output"]["kernel"]
    kernel.set_value(kernel.get_value().at[layer, rows].set(0))
    np.testing.assert_allclose(gated, jax.jit(apply)(output, **batch).logits, atol=1e-5)


def test_mean_ablation(model, batch, scored):
    apply, params = model
    traced = jax.jit(lambda: apply(params, **batch, trace=True).transformer.heads)()
    assert traced.shape == (LAYERS, 6, N, HEADS, WIDTH)
    sums = spectral.sum_heads(traced, batch["mask"])
    expected = np.asarray(traced)[:, batch["mask"]].mean(axis=1)
    np.testing.assert_allclose(sums.mean, expected, atol=1e-6)
    parts = [
        spectral.sum_heads(traced[:, part], batch["mask"][part]) for part in (slice(2), slice(2, 6))
    ]
    np.testing.assert_allclose((parts[0] + parts[1]).mean, expected, atol=1e-6)
    placed = spectral.sum_heads(traced, batch["mask"], by_position=True)
    assert placed.mean.shape == (LAYERS, N, HEADS, WIDTH)
    assert placed.count.shape == (N,)
    first = np.asarray(traced)[:, batch["mask"][:, 0], 0].mean(axis=1)
    np.testing.assert_allclose(placed.mean[:, 0], first, atol=1e-6)
    mean = lambda gates: scored(gates, sums.mean)  # noqa: E731
    zero = spectral.ablate_heads(scored, layers=LAYERS, heads=HEADS)
    filled = spectral.ablate_heads(mean, layers=LAYERS, heads=HEADS)
    np.testing.assert_allclose(filled.score, zero.score, atol=1e-6)
    assert np.abs(filled.ablated - zero.ablated).max() > 1e-3


def test_mean_ablation_of_a_constant_head_changes_nothing(model, batch):
    apply, params = model
    constant = jax.tree.map(lambda x: x, params)
    value = constant["encoder"]["layers"]["attention"]["value"]
    kernel, bias = value["kernel"], value["bias"]
    kernel.set_value(kernel.get_value().at[0, :, :WIDTH].set(0))
    bias.set_value(bias.get_value().at[0, :WIDTH].set(jnp.arange(1, 1 + WIDTH, dtype=jnp.float32)))
    run = jax.jit(lambda p, **options: apply(p, **batch, **options))
    traced = jax.jit(lambda p: apply(p, **batch, trace=True))
    sums = spectral.sum_heads(traced(constant).transformer.heads, batch["mask"])
    np.testing.assert_allclose(sums.mean[0, 0], np.arange(1.0, 1 + WIDTH), atol=1e-5)
    gates = np.ones((LAYERS, HEADS)) - one_head(0, 0)
    whole = run(constant).logits
    np.testing.assert_allclose(
        run(constant, gates=gates, gate_fill=sums.mean).logits, whole, atol=1e-5
    )
    assert np.abs(run(constant, gates=gates).logits - whole).max() > 1e-3


def test_deposit_in_one_head_and_in_all():
    one = np.zeros((3, LAYERS, HEADS))
    one[0, 1, 2] = 0.6
    one[1] = 0.1
    one[2] = -0.3
    found = jax.jit(spectral.deposit)(one)
    np.testing.assert_allclose(found.largest_share, [1, 1 / 6, 0])
    np.testing.assert_allclose(found.entropy, [0, 1, 1], atol=1e-7)
    np.testing.assert_allclose(found.total_drop, [0.6, 0.6, 0], atol=1e-7)
    assert (found.layer[0], found.head[0]) == (1, 2)
    np.testing.assert_allclose(jax.vmap(spectral.deposit)(one).entropy, found.entropy)
    between = spectral.deposit(np.array([[0.5, 0.25], [0.25, -1.0]]))
    np.testing.assert_allclose(between.entropy, 1.5 * np.log(2) / np.log(4), atol=1e-6)
    slope = jax.grad(lambda d: spectral.deposit(d).entropy)(jnp.asarray(one[0]))
    assert np.isfinite(slope).all()
    assert spectral.deposit(np.ones((1, 1))).entropy == 0  # one head has it all


def test_deposit_leaves_out_noise_and_keeps_nan():
    drop = np.array([[0.5, 0.02], [0.01, -0.3]])
    assert spectral.deposit(drop, noise=0.05).largest_share == 1
    assert spectral.deposit(drop).largest_share < 0.95
    assert spectral.deposit(drop, noise=0.02).largest_share == 1  # a drop as large as the noise
    helped = spectral.deposit(np.array([[-0.2, -0.3], [-0.05, -0.1]]))
    assert (helped.layer, helped.head) == (1, 0)
    np.testing.assert_allclose([helped.largest_drop, helped.total_drop], [-0.05, 0])
    missing = spectral.deposit(np.array([[np.nan, 0.1], [0.1, 0.1]]))
    assert np.isnan([missing.largest_share, missing.entropy, missing.total_drop]).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sums_of_narrow_heads_are_wide(dtype):
    sums = spectral.sum_heads(jnp.full((1, 64, 64, 1, 2), 3, dtype))
    assert sums.count == 64 * 64
    assert sums.total.dtype == jnp.float32
    np.testing.assert_array_equal(sum([sums] * 20).mean, np.full((1, 1, 2), 3.0))


def test_bad_input(model, batch):
    apply, params = model
    with pytest.raises(ValueError, match="the score does not depend on its gates"):
        spectral.ablate_heads(lambda gates: apply(params, **batch).logits, layers=2, heads=3)
    with pytest.raises(ValueError, match="the score does not depend on its gates"):
        spectral.ablate_heads(jax.jit(lambda gates: jnp.ones(3).sum()), layers=2, heads=3)
    with pytest.raises(ValueError, match=r"heads have shape \(3,\): pass \[layers, ..., n, "):
        spectral.sum_heads(jnp.ones(3))
    with pytest.raises(ValueError, match=r"gates have shape \(2, 4\)"):
        spectral.ablate_heads(
            lambda gates: apply(params, **batch, gates=gates).logits, layers=2, heads=4
        )
    with pytest.raises(ValueError, match="layers must be at least 1, not 0"):
        spectral.ablate_heads(jnp.sum, layers=0, heads=2)
    with pytest.raises(ValueError, match=r"drop has shape \(3,\): pass \[..., layers, heads\]"):
        spectral.deposit(np.ones(3))
    with pytest.raises(ValueError, match="broadcast"):
        spectral.sum_heads(jnp.ones((2, 4, 3, 2, 2)), np.ones(5, bool))


def test_counts_of_tokens_do_not_wrap():
    many = spectral.HeadSums(jnp.ones((1, 2, 3)), jnp.int32(2**30))
    with pytest.raises(OverflowError, match="2147483648 count of HeadSums"):
        many + many
    assert jax.jit(lambda a, b: (a + b).count)(many, many) == 2**31 - 1
