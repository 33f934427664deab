"""Write `transformers_{bias,content,attention}.npz`: biases and layers of HF transformers.

Run by hand, in an environment of its own with NumPy, torch and transformers (the files say which
versions they came from); the tests need none of them:

    python tools/parity/make_transformers.py

transformers 5 has neither BERT's `relative_key` nor Transformer-XL any more. What is left of them
is stored: Wav2Vec2-BERT's keys and XLNet's attention. Layers are one with a sink (gpt-oss) and one
with a gate (Qwen3-Next).
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

T5_SETTINGS = ((32, 128), (16, 64), (32, 256), (64, 1024))  # num_buckets, max_distance


def t5(out: dict) -> None:
    import torch
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    relative = torch.arange(-1000, 1001)  # memory (key) minus query
    out["t5_relative_positions"] = relative.numpy()
    for buckets, distance in T5_SETTINGS:
        for bidirectional in (True, False):
            name = f"{buckets}_{distance}_{'bidirectional' if bidirectional else 'causal'}"
            found = T5Attention._relative_position_bucket(
                relative, bidirectional=bidirectional, num_buckets=buckets, max_distance=distance
            )
            out[f"t5_buckets_{name}"] = found.numpy().astype(np.int16)

    table = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32)
    out["t5_table"] = table  # [buckets, heads]
    for decoder in (False, True):
        config = T5Config(d_model=12, d_kv=4, num_heads=3, is_decoder=decoder)
        module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        with torch.no_grad():
            module.relative_attention_bias.weight.copy_(torch.from_numpy(table))
            name = "causal" if decoder else "bidirectional"
            out[f"t5_bias_{name}"] = module.compute_bias(40, 40)[0].numpy()
            # Five queries that follow 40 cached keys.
            cached = module.compute_bias(5, 45, past_seen_tokens=40)
            out[f"t5_bias_{name}_cached"] = cached[0].numpy()


def alibi(out: dict) -> None:
    """Slopes: row n-1 holds those of n heads, then NaN."""
    import torch
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes, build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    for name in ("bloom_slopes", "mpt_slopes"):
        out[name] = np.full((64, 64), np.nan, np.float32)
    for heads in range(1, 65):
        out["bloom_slopes"][heads - 1, :heads] = _get_alibi_slopes(heads, torch.device("cpu"))
        # Its bias at the last but one of the keys, which is slope times -1.
        out["mpt_slopes"][heads - 1, :heads] = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]

    # Second row: two tokens of left padding.
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    out["bloom_attention_mask"] = mask.numpy()
    bias = build_alibi_tensor(mask, 12, torch.float32)
    out["bloom_bias_12"] = bias.reshape(2, 12, 1, 6).numpy()


def wav2vec2_bert_keys(out: dict) -> None:
    """What is left of `relative_key`: Shaw's keys, clipped differently to either side."""
    import torch
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as wav2vec2_bert

    rng = np.random.default_rng(1)
    n, heads, dim, left, right = 9, 2, 4, 4, 2
    q, table = rng.standard_normal((1, heads, n, dim)), rng.standard_normal((left + right + 1, dim))
    config = Wav2Vec2BertConfig(
        hidden_size=heads * dim,
        num_attention_heads=heads,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
    )
    module = wav2vec2_bert.Wav2Vec2BertSelfAttention(config).double()
    with torch.no_grad():
        module.distance_embedding.weight.copy_(torch.from_numpy(table))
        query = torch.from_numpy(q)
        _, bias = wav2vec2_bert._apply_relative_key_position_encoding(module, query, query)
    out["wav2vec2_bert_q"] = q[0].transpose(1, 0, 2)  # [positions, heads, dim]
    out["wav2vec2_bert_table"] = table  # row `left` is the offset 0
    out["wav2vec2_bert_clip"] = np.array([left, right])
    out["wav2vec2_bert_bias"] = bias[0].numpy()  # [heads, query, key], scaled


def xlnet(out: dict) -> None:
    """The peer for Transformer-XL's formula without a mask: XLNet's attention, in float64."""
    import torch
    from transformers import XLNetConfig, XLNetModel

    heads, dim, n = 2, 4, 7
    config = XLNetConfig(
        vocab_size=5, d_model=heads * dim, n_layer=1, n_head=heads, d_inner=8, dropout=0.0
    )
    model = XLNetModel(config).eval().double()
    attention = model.layer[0].rel_attn
    rng = np.random.default_rng(7)
    q, k, value = (rng.standard_normal((n, heads, dim)) for _ in range(3))
    u, v = (rng.standard_normal((heads, dim)) for _ in range(2))
    projection = rng.standard_normal((heads, dim, heads * dim))
    with torch.no_grad():
        attention.r_w_bias.copy_(torch.from_numpy(u))
        attention.r_r_bias.copy_(torch.from_numpy(v))
        relative = model.relative_positional_encoding(n, n, bsz=1).double()
        projected = torch.einsum("ibr,hdr->ibhd", relative, torch.from_numpy(projection))
        inputs = (torch.from_numpy(x)[:, None] for x in (q, k, value))
        outputs, _ = attention.rel_attn_core(*inputs, projected, output_attentions=True)
    arrays = {"q": q, "k": k, "value": value, "u": u, "v": v, "projection": projection}
    arrays["outputs"] = outputs[:, 0]
    out.update({f"xlnet_{key}": np.asarray(array) for key, array in arrays.items()})


HEADS, WIDTH, N = 2, 4, 40
DEBERTA = {"log": {"position_buckets": 8, "max_relative_positions": 20}, "plain": {}}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def deberta(out: dict) -> None:
    """Logits of one row, from the attention of DeBERTa v2 with the projections of the tables 1."""
    import torch
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    q, k = (torch.from_numpy(out[name]) for name in ("q", "k"))
    for name, options in DEBERTA.items():
        options = {"max_relative_positions": 6} | options
        span = options.get("position_buckets", options["max_relative_positions"])
        config = DebertaV2Config(
            hidden_size=HEADS * WIDTH,
            num_attention_heads=HEADS,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            share_att_key=False,
            **options,
        )
        layer = DisentangledSelfAttention(config).eval()
        table = torch.from_numpy(normal(2, 2 * span, HEADS * WIDTH))
        with torch.no_grad():
            for table_name, projection in (
                ("key_table", layer.pos_key_proj),
                ("query_table", layer.pos_query_proj),
            ):
                out[f"deberta_{name}_{table_name}"] = projection(table).numpy()
            bias = layer.disentangled_attention_bias(q, k, None, table, 3)
        out[f"deberta_{name}_bias"] = bias.numpy()


def inkling(out: dict) -> None:
    import torch
    from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

    layer = InklingRelativeLogits(3, 8)
    out["inkling_profiles"], out["inkling_r"] = normal(3, 3, 8), normal(4, 1, 5, HEADS, 3)
    layer.proj.data = torch.from_numpy(out["inkling_profiles"])
    positions = torch.arange(N - 5, N), torch.arange(N)
    with torch.no_grad():
        out["inkling_bias"] = layer(torch.from_numpy(out["inkling_r"]), *positions)[0].numpy()


TOKENS, SIZES = (
    7,
    {"hidden_size": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
)


def layers() -> dict:
    """Attention of both models: gpt-oss has no window in its second layer."""
    from transformers import GptOssConfig, Qwen3NextConfig
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    options = SIZES | {"attn_implementation": "eager", "num_hidden_layers": 2}
    return {
        "gpt_oss": GptOssAttention(GptOssConfig(**options), 1),
        "qwen3_next": Qwen3NextAttention(Qwen3NextConfig(**options), 1),
    }


def attention(out: dict) -> None:
    import torch

    rng = np.random.default_rng(0)
    draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape).astype(np.float32))  # noqa: E731
    x = draw(1, TOKENS, SIZES["hidden_size"])
    mask = torch.full((TOKENS, TOKENS), -torch.inf).triu(1)[None, None]
    out["x"] = x.numpy()
    for name, layer in layers().items():
        width = SIZES["head_dim"] // (2 if name == "gpt_oss" else 1)  # its cos and sin are halves
        nowhere = torch.ones(1, TOKENS, width), torch.zeros(1, TOKENS, width)
        for path, parameter in layer.named_parameters():
            parameter.data = 0.5 * draw(*parameter.shape)
            out[f"{name}.{path}"] = parameter.data.numpy()
        with torch.no_grad():
            found, weights = layer(x, nowhere, mask)
        out |= {f"{name}_output": found.numpy(), f"{name}_weights": weights.numpy()}


def main() -> None:
    # Here and above, so that the tests can collect this file without them.
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    heads = {"q": normal(0, HEADS, N, WIDTH), "k": normal(1, HEADS, N, WIDTH)}
    for name, start, parts in (
        ("bias", {}, (t5, alibi, wav2vec2_bert_keys, xlnet)),
        ("content", heads, (deberta, inkling)),
        ("attention", {}, (attention,)),
    ):
        out: dict = {"versions": versions, **start}
        for part in parts:
            part(out)
        np.savez_compressed(HERE / f"transformers_{name}.npz", **out)


if __name__ == "__main__":
    main()
