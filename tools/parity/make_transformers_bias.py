"""Write `transformers_bias.npz`: T5, MPNet, ALiBi, Shaw and Transformer-XL as HF has them.

Run by hand, in an environment of its own with NumPy, torch and transformers (the file says which
versions it came from); the tests need none of them:

    python tools/parity/make_transformers_bias.py

transformers 5 has neither BERT's `relative_key` nor Transformer-XL any more. What is left of them
is stored (Wav2Vec2-BERT's keys, XLNet's attention); the whole of both papers is stored from the
explicit loops below, under names that begin with `explicit_`: independent, but not a peer.
"""

import json
import math
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

T5_SETTINGS = ((32, 128), (16, 64), (32, 256), (64, 1024))  # num_buckets, max_distance


def press_slopes(heads: int) -> list[float]:
    """ALiBi's slopes as the paper describes them (Press, Smith & Lewis 2022), in float64.

    A power of two: 2^(-8/n), 2^(-16/n), ..., 2^(-8). Otherwise those of the power of two below,
    then the first, third, fifth, ... of the power of two above.
    """
    if heads & (heads - 1) == 0:
        return [2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)]
    below = 1 << (heads.bit_length() - 1)
    return press_slopes(below) + press_slopes(2 * below)[::2][: heads - below]


def exact_bucket(relative: int, bidirectional: bool, buckets: int, max_distance: int) -> int:
    """T5's bucket in whole numbers, so that no logarithm is rounded across a boundary."""
    first = 0
    if bidirectional:
        buckets //= 2
        first, distance = (buckets if relative > 0 else 0), abs(relative)
    else:
        distance = max(-relative, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    # floor(log(distance / exact) / log(max_distance / exact) · rest): the largest t such that
    # (distance / exact)^rest >= (max_distance / exact)^t.
    rest, t = buckets - exact, 0
    while (
        exact + t < buckets - 1
        and distance**rest * exact ** (t + 1) >= max_distance ** (t + 1) * exact**rest
    ):
        t += 1
    return first + exact + t


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
            exact = [exact_bucket(r, bidirectional, buckets, distance) for r in relative.tolist()]
            out[f"t5_buckets_{name}"] = found.numpy().astype(np.int16)
            out[f"explicit_t5_buckets_{name}"] = np.array(exact, np.int16)

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


def mpnet(out: dict) -> None:
    import torch
    from transformers import MPNetConfig
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    relative = torch.arange(-200, 201)
    out["mpnet_relative_positions"] = relative.numpy()
    out["mpnet_buckets"] = MPNetEncoder.relative_position_bucket(relative).numpy().astype(np.int16)
    config = MPNetConfig(
        hidden_size=12, num_attention_heads=3, num_hidden_layers=1, intermediate_size=12
    )
    encoder = MPNetEncoder(config)
    with torch.no_grad():
        encoder.relative_attention_bias.weight.copy_(torch.from_numpy(out["t5_table"]))
        out["mpnet_bias"] = encoder.compute_position_bias(torch.zeros(1, 40, 12))[0].numpy()


def alibi(out: dict) -> None:
    """Slopes: row n-1 holds those of n heads, then NaN."""
    import torch
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes, build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    for name in ("press_slopes", "bloom_slopes", "mpt_slopes"):
        out[name] = np.full((64, 64), np.nan, np.float64 if name[0] == "p" else np.float32)
    for heads in range(1, 65):
        out["press_slopes"][heads - 1, :heads] = press_slopes(heads)
        out["bloom_slopes"][heads - 1, :heads] = _get_alibi_slopes(heads, torch.device("cpu"))
        # Its bias at the last but one of the keys, which is slope times -1.
        out["mpt_slopes"][heads - 1, :heads] = -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]

    # Second row: two tokens of left padding.
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    out["bloom_attention_mask"] = mask.numpy()
    for heads in (8, 12):
        bias = build_alibi_tensor(mask, heads, torch.float32)
        out[f"bloom_bias_{heads}"] = bias.reshape(2, heads, 1, 6).numpy()
        out[f"mpt_bias_{heads}"] = build_mpt_alibi_tensor(heads, 6).numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


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


def shaw(out: dict) -> None:
    """Shaw, Uszkoreit & Vaswani 2018, equations 3 and 4, entry by entry."""
    rng = np.random.default_rng(2)
    n, heads, dim, clip = 9, 2, 4, 3
    q, k, v = (rng.standard_normal((n, heads, dim)) for _ in range(3))
    table_k, table_v = (rng.standard_normal((2 * clip + 1, dim)) for _ in range(2))
    logits = np.zeros((heads, n, n))
    for h in range(heads):
        for i in range(n):
            for j in range(n):
                row = max(-clip, min(clip, j - i)) + clip
                logits[h, i, j] = q[i, h] @ (k[j, h] + table_k[row]) / math.sqrt(dim)
    weights, outputs = softmax(logits), np.zeros((n, heads, dim))
    for h in range(heads):
        for i in range(n):
            for j in range(n):
                row = max(-clip, min(clip, j - i)) + clip
                outputs[i, h] += weights[h, i, j] * (v[j, h] + table_v[row])
    arrays = {"q": q, "k": k, "v": v, "table_k": table_k, "table_v": table_v}
    arrays |= {"logits": logits, "weights": weights, "outputs": outputs}
    out.update({f"explicit_shaw_{name}": array for name, array in arrays.items()})


def sinusoid(offset: int, dim: int) -> np.ndarray:
    """R of an offset of either sign: all sines, then all cosines."""
    phases = [offset * 10_000.0 ** (-2 * k / dim) for k in range(dim // 2)]
    return np.array([math.sin(p) for p in phases] + [math.cos(p) for p in phases])


def relative_shift_logits(q, k, projected, u, v):
    """The classical way: two products, one of them shifted. `projected` runs from far to near.

    q [queries, heads, dim], k and projected [keys, heads, dim]; right where key <= query only.
    """
    import torch

    content = torch.einsum("ihd,jhd->ijh", q + u, k)
    position = torch.einsum("ihd,jhd->ijh", q + v, projected)
    queries, keys, heads = position.shape
    padded = torch.cat([position.new_zeros(queries, 1, heads), position], dim=1)
    shifted = padded.view(keys + 1, queries, heads)[1:].view(queries, keys, heads)
    return ((content + shifted) / math.sqrt(q.shape[-1])).permute(2, 0, 1)


def transformer_xl(out: dict) -> None:
    """Dai et al. 2019, section 3.3, entry by entry for offsets of both signs, in float64."""
    import torch

    heads, dim, width = 2, 4, 8
    for name, memory, n in (("txl", 0, 7), ("txl_memory", 3, 6)):
        rng = np.random.default_rng(3 + memory)
        keys = memory + n
        q, k, value = (rng.standard_normal((m, heads, dim)) for m in (n, keys, keys))
        u, v = (rng.standard_normal((heads, dim)) for _ in range(2))
        projection = rng.standard_normal((heads, dim, width))  # W_{k,R}
        offsets = np.arange(-(keys - 1), keys)  # query position minus key position
        table = np.stack([sinusoid(int(offset), width) for offset in offsets])
        terms = {
            t: np.zeros((heads, n, keys))
            for t in ("content_content", "content_position", "u_content", "v_position")
        }
        for h in range(heads):
            for i in range(n):
                for j in range(keys):
                    relative = projection[h] @ sinusoid(memory + i - j, width)
                    terms["content_content"][h, i, j] = q[i, h] @ k[j, h]
                    terms["content_position"][h, i, j] = q[i, h] @ relative
                    terms["u_content"][h, i, j] = u[h] @ k[j, h]
                    terms["v_position"][h, i, j] = v[h] @ relative
        logits = sum(terms.values()) / math.sqrt(dim)
        causal = np.arange(keys)[None] <= memory + np.arange(n)[:, None]
        weights = softmax(np.where(causal, logits, -np.inf))

        far_to_near = np.stack([sinusoid(offset, width) for offset in range(keys - 1, -1, -1)])
        projected = np.einsum("hdr,jr->jhd", projection, far_to_near)
        shifted = relative_shift_logits(*map(torch.from_numpy, (q, k, projected, u, v))).numpy()
        np.testing.assert_allclose(shifted[:, causal], logits[:, causal], rtol=0, atol=1e-12)
        assert np.abs(shifted - logits)[:, ~causal].max() > 0.1  # and nowhere else

        arrays = {"q": q, "k": k, "value": value, "u": u, "v": v, "projection": projection}
        arrays |= {"offsets": offsets, "table": table, **terms, "logits": logits}
        arrays |= {"causal_mask": causal, "causal_weights": weights}
        arrays["causal_outputs"] = np.einsum("hij,jhd->ihd", weights, value)
        out.update({f"explicit_{name}_{key}": array for key, array in arrays.items()})


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
        outputs, weights = attention.rel_attn_core(*inputs, projected, output_attentions=True)
    arrays = {"q": q, "k": k, "value": value, "u": u, "v": v, "projection": projection}
    arrays |= {"table": relative[:, 0].numpy(), "offsets": np.arange(n, -n, -1)}  # float32 inside
    arrays |= {"weights": weights[:, :, 0].permute(2, 0, 1).numpy(), "outputs": outputs[:, 0]}
    out.update({f"xlnet_{key}": np.asarray(array) for key, array in arrays.items()})


def yarn_softmax_scale(out: dict) -> None:
    """DeepSeek-V3 multiplies its softmax scale, besides cos and sin: JSON of parameters, scale."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale

    found = []
    for extra in ({}, {"mscale": 1.0, "mscale_all_dim": 1.0}, {"mscale_all_dim": 0.707}):
        parameters = {"rope_type": "yarn", "factor": 40.0, **extra}
        found.append([parameters, yarn_apply_mscale(parameters, 192**-0.5)])
    out["deepseek_softmax_scales_192"] = json.dumps(found)


def main() -> None:
    # Here and above, so that the tests can collect this file without them.
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    out = {"versions": f"transformers {transformers.__version__}, torch {torch.__version__}"}
    for part in (t5, mpnet, alibi, wav2vec2_bert_keys, shaw, transformer_xl, xlnet):
        part(out)
    yarn_softmax_scale(out)
    np.savez_compressed(HERE / "transformers_bias.npz", **out)


if __name__ == "__main__":
    main()
