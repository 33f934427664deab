"""A model as functions of its positions: what its first attention reads, and what may be added."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe.encodings import LayerPattern
from jaxpe.nn import CausalLM, Classifier, Decoder, Encoder, MaskedLM, TransformerConfig, load_model
from jaxpe.nn import position_functions as functions
from jaxpe.nn.positions import position_table
from tests.nn.stored import PARITY

VOCAB, DIM, N = 7, 8, 5
IDS = np.array([3, 1, 4, 1, 5], np.int32)


def classifier(encoding=None, **choices):
    config = TransformerConfig(vocab_size=VOCAB, dim=DIM, num_layers=2, num_heads=2, **choices)
    encoding = encodings.learned(length=9, dim=DIM) if encoding is None else encoding
    encoder = Encoder(config, encoding=encoding, rngs=nnx.Rngs(0))
    return Classifier(encoder, num_classes=2, rngs=nnx.Rngs(1))


@pytest.mark.parametrize(
    "choices",
    [
        {"norm_position": "pre"},
        {"norm_position": "pre", "first_norm": False},
        {"norm_position": "post"},
    ],
    ids=str,
)
def test_tokens_are_what_the_first_attention_reads(choices):
    """At P = 0 its logits are those of the tokens' queries and keys."""
    of = functions(classifier(**choices), length=N)

    @jax.jit
    def both():
        seen = of.apply(0 * of.vectors, of.no_shift, IDS, trace=True).transformer.logits[0]
        q, k = (jnp.einsum("nd,dhc->hnc", of.tokens[IDS], w) for w in of.projections[:2])
        return seen, jnp.einsum("hic,hjc->hij", q, k) / 2.0

    seen, ours = both()
    # Biases of queries and keys start at 0.
    np.testing.assert_allclose(seen, ours, rtol=1e-5, atol=1e-9)
    assert np.allclose(of.tokens, of.embeddings) == ("first_norm" in choices)


def test_long_rows_have_shifts_and_forward_derivatives():
    """Attention of models is in blocks beyond 512 tokens; these functions need all pairs."""
    n = 260
    of = functions(classifier(encodings.sinusoidal(dim=DIM)), length=n)
    ids = np.arange(n, dtype=np.int32) % VOCAB

    @jax.jit
    def slopes(P, shift, direction):
        f = lambda shift: of.apply(P, shift, ids).logits.sum()  # noqa: E731
        return jax.jvp(f, (shift,), (direction,))[1], jnp.vdot(jax.grad(f)(shift), direction)

    direction = np.random.default_rng(0).standard_normal(of.no_shift.shape)
    forward, backward = slopes(of.vectors, of.no_shift, direction.astype(of.no_shift.dtype))
    assert forward != 0
    np.testing.assert_allclose(forward, backward, rtol=1e-6)


def test_what_is_added_to_attention_reaches_the_output():
    """In a layer with W_O = 0 it is all that attention gives."""
    model = classifier(norm_position="post")
    kernel = model.encoder.layers.attention.output.kernel
    model.encoder.layers.attention.output.kernel = nnx.Param(0.0 * kernel.get_value())
    of = functions(model, length=N)
    added = jnp.asarray(np.random.default_rng(0).normal(size=(N, DIM)), jnp.float32)

    @jax.jit
    def states(added):
        out = of.apply(of.vectors, of.no_shift, IDS, added=added, trace=True)
        return out.transformer.hidden_states

    none = jax.jit(lambda: of.apply(of.vectors, of.no_shift, IDS, trace=True))()
    none = none.transformer.hidden_states
    np.testing.assert_array_equal(states(0 * added), none)
    moved = states(added)
    np.testing.assert_array_equal(moved[0], none[0])  # what enters stays
    x = none[0] + added
    graphdef, params = nnx.split(model.encoder.layers)
    block = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf[0], params))
    x = block.attention_norm(x)
    np.testing.assert_allclose(moved[1], block.mlp_norm(x + block.mlp(x)), rtol=1e-5, atol=1e-6)


def test_what_else_tells_the_order():
    """Any hook of attention, in all layers or in some, and a causal mask."""
    sizes = {"vocab_size": VOCAB, "dim": DIM, "num_layers": 2, "num_heads": 2}
    learned = encodings.learned(length=9, dim=DIM)
    assert functions(classifier(learned), length=N).no_other_order
    for hook in ("context", "query", "products", "bias", "mask", "value"):
        encoding = encodings.Encoding(**{hook: lambda *arguments: None})
        assert not functions(classifier(encoding), length=N).no_other_order
    pattern = LayerPattern((encodings.identity(), encodings.alibi(num_heads=2)))
    encoder = Encoder(TransformerConfig(**sizes), layer_encoding=pattern, rngs=nnx.Rngs(0))
    decoder = Decoder(TransformerConfig(**sizes), encoding=learned, rngs=nnx.Rngs(0))
    for model in (MaskedLM(encoder, rngs=nnx.Rngs(1)), CausalLM(decoder, rngs=nnx.Rngs(1))):
        assert not functions(model, length=N).no_other_order


def test_position_tables_are_what_embeddings_gain():
    bert = load_model(PARITY / "tiny_bert").encoder
    np.testing.assert_array_equal(position_table(bert), bert.encoding_params.get_value()["table"])
    assert position_table(MaskedLM(bert, rngs=nnx.Rngs(1)), length=3).shape == (3, 32)
    mpnet = load_model(PARITY / "tiny_mpnet").encoder
    learned, _ = mpnet.encoding_params.get_value()
    np.testing.assert_array_equal(position_table(mpnet), learned["table"][2:])


def test_position_tables_that_are_not_there_are_refused():
    config = TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    rotary, sinusoidal = (
        Encoder(config, encoding=encoding, rngs=nnx.Rngs(0))
        for encoding in (encodings.rope(head_dim=4), encodings.sinusoidal(dim=8))
    )
    assert position_table(sinusoidal, length=5).shape == (5, 8)
    bert = load_model(PARITY / "tiny_bert").encoder
    for model, options, wrong in (
        (rotary, {}, "vectors"),
        (sinusoidal, {}, "length"),
        (bert, {"length": 41}, "40"),
    ):
        with pytest.raises(InputError, match=wrong):
            position_table(model, **options)
