"""The models against a plain NumPy transformer, their layers against a loop, and what they draw."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxpe
import jaxpe.nn.blocks
import jaxpe.nn.transformer
from jaxpe import encodings, nn
from jaxpe.encodings import implementations
from jaxpe.encodings.attention_terms import dropout_bits
from jaxpe.nn.attention import BoundEncoding, Context, Gates
from tests.nn.models import (
    HEAD_DIM,
    HEADS,
    N,
    config,
    decoder,
    empty_cache,
    encoder,
    encoder_decoder,
    encoding_for,
    filled,
    shapes_of,
    some_ids,
    split,
)

ROPE = encodings.rope(head_dim=HEAD_DIM)
GROUPED = {"num_heads": 4, "num_kv_heads": 2, "head_dim": HEAD_DIM}  # two queries a key, two keys
LATENT = nn.LatentSizes(key_value_rank=6, rotary_dim=HEAD_DIM, query_rank=6, value_dim=4)
WIDE_LATENT = nn.LatentSizes(key_value_rank=6, rotary_dim=HEAD_DIM, value_dim=16)
RMS = {"norm": "rms", "use_bias": False}
# Every choice of a block occurs, with others in few models.
KINDS = {
    "plain": {},
    "post_latent": {"norm_position": "post", "latent": LATENT, "activation": "relu"},
    "llama": {**RMS, **GROUPED, "activation": "swiglu", "scan": False, "token_types": 3},
    "rms_latent_gate": {
        **RMS, "norm_position": "post", "embedding_norm": False, "latent": WIDE_LATENT,
        "attention_gate": True, "activation": "silu",
    },
    "both": {
        "norm": "rms", "norm_position": "both", "query_key_norm": True, "attention_scale": 0.7,
        "attention_cap": 2.0, "embedding_factor": 3.0, "activation": "geglu_tanh",
        "use_bias": ("query_key_value",),
    },
    "parallel": {
        **GROUPED, "residual": "parallel", "use_bias": ("feed_forward", "norm"),
        "activation": "gelu_tanh", "embedding_norm": True,
    },
    "one_norm": {
        "residual": "parallel_one_norm", "first_norm": False, "activation": "geglu",
        "attention_sink": True, "attention_gate": True, "num_kv_heads": 1,
    },
}  # fmt: skip

# A transformer for one row, in float64: x is [n, dim], p the parameters of what it is passed to.


def dense(p, x):
    return x @ p["kernel"] + p.get("bias", 0.0)


def normed(config, p, x):
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019)."""
    x = x if config.norm == "rms" else x - x.mean(-1, keepdims=True)
    scale = np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_epsilon)
    return x / scale * p["scale"] + p.get("bias", 0.0)


NONLINEAR = {
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}  # Shazeer (2020), Eq. (6)


def feed_forward(config, p, x):
    if config.activation in GATES:
        gate = NONLINEAR[GATES[config.activation]](dense(p["gate"], x))
        return dense(p["down"], gate * dense(p["up"], x))
    return dense(p["down"], NONLINEAR[config.activation](dense(p["up"], x)))


def rotated(x):
    return np.asarray(ROPE.query((), x[:, None], np.arange(len(x))))[:, 0]


def heads_of(x, width):
    return [x[:, i : i + width] for i in range(0, x.shape[1], width)]


def grouped_heads(config, p, x, source):
    """Query, key and value of every head (Ainslie et al. 2023, Figure 2)."""
    from_each = {"query": x, "key": source, "value": source}
    q, k, v = (heads_of(dense(p[name], y), config.head_width) for name, y in from_each.items())
    sharing = len(q) // len(k)
    if config.query_key_norm:
        q, k = (
            [normed(config, p[f"{n}_norm"], y) for y in x] for n, x in (("query", q), ("key", k))
        )
    return [(rotated(q[h]), rotated(k[h // sharing]), v[h // sharing]) for h in range(len(q))]


def latent_heads(config, p, x, source):
    """Query, key and value of every head, by Eq. (9) to (16) of DeepSeek-AI (2024)."""
    width, rotary = config.head_width, config.latent.rotary_dim
    compressed = normed(config, p["key_value_norm"], dense(p["key_value_down"], source))
    shared_key = rotated(dense(p["rotary_key"], source))
    if config.latent.query_rank is None:
        from_x = x
    else:
        from_x = normed(config, p["query_norm"], dense(p["query_down"], x))
    heads = []
    for h, q in enumerate(heads_of(dense(p["query"], from_x), width + rotary)):
        k = heads_of(dense(p["key"], compressed), width)[h]
        v = heads_of(dense(p["value"], compressed), config.latent.value_dim or width)[h]
        q = np.hstack([q[:, :width], rotated(q[:, width:])])
        heads.append((q, np.hstack([k, shared_key]), v))
    return heads


def attention(config, causal, p, x, source=None):
    """Eq. (1) of Vaswani et al. (2017), head after head."""
    mixed, source = [], x if source is None else source
    heads = (latent_heads if config.latent else grouped_heads)(config, p, x, source)
    for h, (q, k, v) in enumerate(heads):
        logits = q @ k.T * (config.attention_scale or q.shape[1] ** -0.5)
        if config.attention_cap:
            logits = config.attention_cap * np.tanh(logits / config.attention_cap)
        if causal:
            logits[np.triu_indices(len(x), 1)] = -np.inf
        weights = np.exp(logits)
        nowhere = np.exp(p["sink"][h]) if config.attention_sink else 0.0
        mixed.append(weights / (weights.sum(-1, keepdims=True) + nowhere) @ v)
    out = np.hstack(mixed)
    if config.attention_gate:
        out = out / (1 + np.exp(-dense(p["gate"], x)))
    return dense(p["output"], out)


def reference(config, p, ids, types=None, *, causal, memory=None, tokens=None):
    """Hidden states of one row; with those of an encoder, attention to them in between."""
    x = (p["tokens"] if tokens is None else tokens)["embedding"][ids] * config.embedding_factor
    x = x + p["token_types"]["embedding"][types] if config.token_types else x
    x = normed(config, p["embedding_norm"], x) if config.normalises_embeddings else x
    for i in range(config.num_layers):
        layer = jax.tree.map(lambda stacked, i=i: stacked[i], p["layers"])
        x = block(config, causal, layer, x, first=i == 0, memory=memory)
    return x if config.norm_position == "post" else normed(config, p["final_norm"], x)


def block(config, causal, p, x, *, first, memory=None):
    """Attention and feed-forward layer, one after the other or of the same x."""
    attend = partial(attention, config, causal, p["attention"])
    transform = partial(feed_forward, config, p["mlp"])
    norms = {k: partial(normed, config, v) for k, v in p.items() if "norm" in k}
    if memory is not None:
        cross = partial(attention, config, False, p["cross_attention"], source=memory)
    if config.norm_position == "post":
        x = norms["attention_norm"](x + attend(x))
        x = x if memory is None else norms["cross_norm"](x + cross(x))
        return norms["mlp_norm"](x + transform(x))
    behind = {k: norms.get(f"{k}_output_norm", lambda y: y) for k in ("attention", "cross", "mlp")}
    entered = x if first and not config.first_norm else norms["attention_norm"](x)
    added = behind["attention"](attend(entered))
    if config.residual == "sequential":
        x = x + added
        x = x if memory is None else x + behind["cross"](cross(norms["cross_norm"](x)))
        return x + behind["mlp"](transform(norms["mlp_norm"](x)))
    shared = config.residual == "parallel_one_norm"
    return x + added + transform(entered if shared else norms["mlp_norm"](x))


PADDING = np.array([0, 2])  # on the left of each row


@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_is_a_plain_transformer_also_in_parts(kind):
    """Rows at once, and in three parts that go through a cache."""
    changes, ids = KINDS[kind], some_ids(2, N)
    own, mask = config(**changes), np.arange(N) >= PADDING[:, None]
    options = {"mask": mask, "positions": np.asarray(nn.padded_positions(mask))}
    if own.token_types:
        options["token_types"] = np.array([[0, 1, 2, 0, 1, 2]] * 2, np.int32)
    apply, params = decoder(ROPE, **changes)

    @jax.jit
    def run(params):
        whole = apply(params, ids, **options).hidden
        cache, out = empty_cache(ROPE, slots=N + 2, **changes), []
        for part in (slice(0, 3), slice(3, 4), slice(4, 6)):
            here = {name: array[:, part] for name, array in options.items()}
            piece = apply(params, ids[:, part], cache=cache, **here)
            cache = piece.cache
            out.append(piece.hidden)
        return whole, jnp.concatenate(out, axis=1)

    plain = jax.tree.map(np.asarray, nnx.to_pure_dict(params))
    for found in jax.device_get(run(params)):
        for row, start in enumerate(PADDING):
            types = options["token_types"][row, start:] if own.token_types else None
            expected = reference(own, plain, ids[row, start:], types, causal=True)
            np.testing.assert_allclose(found[row, start:], expected, rtol=1e-9, atol=1e-9)


CROSSING = {
    "grouped_post": {**GROUPED, "norm_position": "post"},
    "latent_sink": {"latent": LATENT, "attention_sink": True, "attention_gate": True},
}


@pytest.mark.parametrize("kind", CROSSING)
def test_the_decoder_attends_to_the_encoder(kind):
    """Both stacks and the attention between them, each with rotary positions of its own."""
    own, ids, answers = config(**CROSSING[kind]), some_ids(2, N), some_ids(2, N - 2, seed=1)
    model = shapes_of(lambda: encoder_decoder(own, ROPE, ROPE, ROPE))
    apply, params = filled(model)
    found = jax.jit(apply)(params, ids, answers).hidden
    plain = jax.tree.map(np.asarray, nnx.to_pure_dict(params))
    tokens = plain["encoder"]["tokens"]
    for row, answer, hidden in zip(ids, answers, found, strict=True):
        memory = reference(own, plain["encoder"], row, causal=False)
        expected = reference(
            own, plain["decoder"], answer, causal=True, memory=memory, tokens=tokens
        )
        np.testing.assert_allclose(hidden, expected, rtol=1e-9, atol=1e-9)


def test_layers_follow_one_another_with_one_encoding_for_all():
    """The scan against a loop over layers: values, and gradients also of shared parameters."""
    shared, own = encoding_for("t5"), encoding_for("transformer_xl")

    def make():
        sizes = config(num_layers=3)
        return nn.Encoder(sizes, encoding=shared, layer_encoding=own, rngs=nnx.Rngs(0))

    graphdef, _ = nnx.split(shapes_of(make), nnx.Param)
    apply, params = split(make)
    rng = np.random.default_rng(1)
    ids, gates = some_ids(2, N), rng.standard_normal((3, HEADS))
    direction = rng.standard_normal((2, N, params["tokens"]["embedding"].shape[1]))

    def loop(params):
        model = nnx.merge(graphdef, params)
        i = jnp.arange(N, dtype=jnp.int32)
        bound = BoundEncoding(shared, model.encoding_params.get_value())
        context = Context(i, i, shared=bound)
        x = model.embed(ids, positions=i)
        for layer in range(3):
            definition, stacked = nnx.split(model.layers)
            block = nnx.merge(definition, jax.tree.map(lambda a, layer=layer: a[layer], stacked))
            x = block(x, context, gates=Gates(gates[layer])).output
        return model.final_norm(x)

    def along(hidden):
        return jax.jit(jax.value_and_grad(lambda p: (hidden(p) * direction).sum()))(params)

    found = along(lambda p: apply(p, ids, gates=gates).hidden)
    looped = along(loop)
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    jax.tree.map(close, found, looped)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(found[1]["encoding_params"]))


# What is drawn: parameters as they begin, and dropout.


def named(params):
    """Parameters by their path."""
    leaves, _ = jax.tree.flatten_with_path(nnx.to_pure_dict(params))
    return {jax.tree_util.keystr(p, simple=True, separator="."): np.asarray(x) for p, x in leaves}


@pytest.fixture(scope="module")
def drawn():
    """Parameters of a model as they begin, wide enough to take standard deviations of."""
    wide = {"dim": 32, "hidden_dim": 48, "num_layers": 3, "vocab_size": 60, "token_types": 30}
    scales = {"init_scale": 0.05, "embedding_scale": 0.7, "activation": "swiglu"}
    latent = nn.LatentSizes(key_value_rank=16, rotary_dim=16, query_rank=16)
    own = config(**wide, **scales, latent=latent, embedding_norm=True)
    return named(jax.jit(lambda: nnx.state(nn.Encoder(own, rngs=nnx.Rngs(5)), nnx.Param))())


def test_kernels_are_drawn_for_themselves_and_as_wide_as_asked(drawn):
    layers = {
        (name, i): kernel
        for name, stacked in drawn.items()
        if name.endswith("kernel")
        for i, kernel in enumerate(stacked)
    }
    assert len(layers) >= 3 * 7
    for kernel in layers.values():  # of 512 numbers at least: five standard errors are 16 %
        assert abs(kernel.std() / 0.05 - 1) < 0.16
        assert abs(kernel.mean()) < 0.012
    flat = np.stack([kernel.ravel()[:512] for kernel in layers.values()])
    between = np.abs(np.corrcoef(flat) - np.eye(len(flat)))
    assert between.max() < 0.25


def test_embeddings_norms_and_biases_begin_as_documented(drawn):
    kinds = {name.split(".")[-1] for name in drawn}
    assert kinds == {"kernel", "embedding", "scale", "bias"}
    for name, values in drawn.items():
        if name.endswith("embedding"):
            assert abs(values.std() / 0.7 - 1) < 0.12
        elif not name.endswith("kernel"):
            np.testing.assert_array_equal(values, 1.0 if name.endswith("scale") else 0.0)
    tables = [drawn[f"{name}.embedding"][:30] for name in ("tokens", "token_types")]
    assert abs(np.corrcoef(*(table.ravel() for table in tables))[0, 1]) < 0.2


def test_every_place_of_every_layer_drops_by_a_key_of_its_own(monkeypatch):
    seen = []

    def recorded(x, *, rate, key):
        if isinstance(key, jax.core.Tracer):  # positions are checked by shapes first
            return x
        seen.append((rate, x.shape, tuple(np.asarray(jax.random.key_data(key)).tolist())))
        return x

    def recorded_bits(key, shape, n_q, n_k):
        if not isinstance(key, jax.core.Tracer):
            data = np.asarray(jax.random.key_data(key)).tolist()
            seen.append((0.2, (*shape, n_q, n_k), tuple(data)))
        return dropout_bits(key, shape, n_q, n_k)

    for module in (jaxpe.nn.blocks, jaxpe.nn.transformer):
        monkeypatch.setattr(module, "dropout", recorded)
    monkeypatch.setattr(implementations, "dropout_bits", recorded_bits)
    rates = {"dropout": 0.1, "attention_dropout": 0.2}
    apply, params = encoder(**rates)
    with jax.disable_jit():  # a scan is a loop, whose keys have values
        apply(params, some_ids(1, N), dropout_key=jax.random.key(0))
    weights, added = (0.2, (1, HEADS, N, N)), (0.1, (1, N, 8))
    assert [call[:2] for call in seen] == [added] + 2 * [weights, added, added]
    assert len({key for *_, key in seen}) == 7
