"""Write `transformers_{rope,bias,content,attention}.npz`: rotations, biases and layers.

It needs torch and transformers; the tests need neither.

Frequencies: `cases` is a JSON list, one entry per case; `<name>_inv_freq`, `<name>_cos` and
`<name>_sin` belong to it. Layout of queries and keys: [batch, positions, heads, head_dim].
transformers 5 has neither BERT's `relative_key` nor Transformer-XL any more. What is left of them
is stored: Wav2Vec2-BERT's keys and XLNet's attention. Layers are one with a sink (gpt-oss) and one
with a gate (Qwen3-Next).
"""

import copy
import json

import numpy as np

from tools.parity.goldens import HERE, write_arrays

L0 = 2048
HEAD_DIM = 16
SHAPE = (2, 7, 3, HEAD_DIM)
POSITION_IDS = {
    "arange": [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]],
    # First row: three tokens of left padding; second: two documents in one row.
    "padded_packed": [[0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2, 3]],
    "far": [[1000, 1001, 1002, 1003, 1004, 1005, 1006], [7, 3, 200, 5, 0, 1, 4000]],
}
# [axis: time, height, width][batch][position]: text, image of 2 x 2, text; then anything.
MROPE_POSITION_IDS = [
    [[0, 1, 2, 2, 2, 2, 4], [5, 0, 3, 9, 1, 30, 2]],
    [[0, 1, 2, 2, 3, 3, 4], [1, 8, 0, 2, 40, 3, 6]],
    [[0, 1, 2, 3, 2, 3, 4], [7, 2, 5, 0, 11, 4, 50]],
]


def rope_cases() -> list[dict]:
    """Every rope type of `ROPE_INIT_FUNCTIONS` and "default", with lengths where they matter."""
    cases = []

    def add(name, rope_type, head_dim=64, max_position=L0, seq_len=L0 + 6, theta=1e4, **parameters):
        rope = {"rope_type": rope_type, "rope_theta": theta, **parameters}
        length = rope.get("original_max_position_embeddings", max_position)
        positions = {0, 1, 17, length - 1, seq_len - 1}
        cases.append(
            {
                "name": name,
                "rope_parameters": rope,
                "head_dim": head_dim,
                "max_position_embeddings": max_position,
                "seq_len": seq_len,
                "positions": sorted(p for p in positions if p < seq_len),
            }
        )

    add("default_64", "default")
    add("default_128", "default", head_dim=128, theta=5e5)

    add("linear_64", "linear", factor=4.0)
    add("linear_128", "linear", head_dim=128, theta=1e6, factor=2.5)
    add("linear_partial", "linear", factor=4.0, partial_rotary_factor=0.5)

    for seq_len in (1024, L0, L0 + 1, 4096, 8192):
        add(f"dynamic_64_at_{seq_len}", "dynamic", seq_len=seq_len, factor=4.0)
    for seq_len in (8192, 16384):
        add(f"dynamic_8k_at_{seq_len}", "dynamic", max_position=8192, seq_len=seq_len, factor=4.0)
    add("dynamic_128_at_3000", "dynamic", head_dim=128, seq_len=3000, factor=2.0, theta=5e5)
    add("dynamic_factor_one_at_3000", "dynamic", seq_len=3000, factor=1.0)
    add("dynamic_partial_at_4096", "dynamic", seq_len=4096, factor=4.0, partial_rotary_factor=0.5)

    yarn = {"factor": 4.0, "original_max_position_embeddings": L0}
    variants = {
        "plain": {},
        "attention_factor": {"attention_factor": 0.75},
        "mscale_equal": {"mscale": 1.0, "mscale_all_dim": 1.0},
        "mscale": {"mscale": 0.707, "mscale_all_dim": 1.2},
        "mscale_only": {"mscale": 0.707},  # no effect without the other
        "not_truncated": {"truncate": False},
        "betas": {"beta_fast": 64.0, "beta_slow": 4.0},
        "betas_not_truncated": {"beta_fast": 20.0, "beta_slow": 2.0, "truncate": False},
        "large_beta_fast": {"beta_fast": 1000.0},  # low would be negative
        "large_theta": {"rope_theta": 1e6},
        "small_theta": {"rope_theta": 100.0},  # high would exceed the dimension
        "partial": {"partial_rotary_factor": 0.5},
        "factor_one": {"factor": 1.0},
        "factor_derived": {"factor": None},  # max_position_embeddings over the original
        "empty_ramp": {"beta_fast": 2.0, "beta_slow": 2.0, "truncate": False},
    }
    for name, extra in variants.items():
        parameters = {**yarn, **extra}
        theta = parameters.pop("rope_theta", 1e4)
        add(f"yarn_{name}", "yarn", max_position=4 * L0, theta=theta, **parameters)
    add("yarn_128", "yarn", 128, 16 * 4096, 4102, 1e4, factor=16.0,
        original_max_position_embeddings=4096)  # fmt: skip

    rng = np.random.default_rng(0)
    for head_dim in (64, 128):
        half = head_dim // 2
        factors = {
            "short_factor": np.round(1.0 + rng.random(half), 3).tolist(),
            "long_factor": np.round(1.0 + 30.0 * np.sort(rng.random(half)), 3).tolist(),
            "original_max_position_embeddings": L0,
        }
        for seq_len in (1024, L0, L0 + 1, 4096) if head_dim == 64 else (L0, 4096):
            add(f"longrope_{head_dim}_at_{seq_len}", "longrope", head_dim, 8 * L0, seq_len,
                factor=8.0, **factors)  # fmt: skip
        if head_dim == 64:
            for name, extra in (
                ("factor_derived", {}),
                ("factor_none", {"factor": None}),
                ("factor_one", {"factor": 1.0}),
                ("attention_factor", {"factor": 8.0, "attention_factor": 1.3}),
            ):
                add(f"longrope_{name}", "longrope", head_dim, 4 * L0, 4096, **factors, **extra)
            # Half the dimensions rotate, so half the factors.
            factors |= {k: factors[k][: half // 2] for k in ("short_factor", "long_factor")}
            add("longrope_partial", "longrope", head_dim, 8 * L0, 4096, factor=8.0,
                partial_rotary_factor=0.5, **factors)  # fmt: skip

    llama3 = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    for name, head_dim, theta, extra in (
        ("64", 64, 5e5, {}),
        ("128", 128, 5e5, {}),
        ("factor_32", 64, 5e5, {"factor": 32.0}),
        ("other", 64, 1e4, {"factor": 4.0, "low_freq_factor": 2.0, "high_freq_factor": 16.0,
                            "original_max_position_embeddings": 1024}),
        ("partial", 64, 5e5, {"partial_rotary_factor": 0.5}),
    ):  # fmt: skip
        parameters = {**llama3, **extra}
        length = parameters["original_max_position_embeddings"]
        add(f"llama3_{name}", "llama3", head_dim, 8 * length, length + 6, theta, **parameters)

    add("proportional_whole", "proportional", theta=1e6)
    add("proportional_quarter", "proportional", theta=1e6, partial_rotary_factor=0.25)
    add("proportional_floor", "proportional", partial_rotary_factor=0.3)  # int(9.6) = 9 pairs
    add("proportional_factor", "proportional", factor=8.0, partial_rotary_factor=0.25)
    add("proportional_128", "proportional", 128, factor=2.0, partial_rotary_factor=0.5)
    return cases


def frequencies(out: dict) -> None:
    """Frequencies and attention factor, and cos and sin as a fresh module returns them."""
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    cases = rope_cases()
    assert set(ROPE_INIT_FUNCTIONS) | {"default"} == {
        case["rope_parameters"]["rope_type"] for case in cases
    }
    for case in cases:
        config = LlamaConfig(
            hidden_size=4 * case["head_dim"],
            num_attention_heads=4,
            head_dim=case["head_dim"],
            max_position_embeddings=case["max_position_embeddings"],
            rope_parameters=copy.deepcopy(case["rope_parameters"]),
        )
        rope_type = case["rope_parameters"]["rope_type"]
        if rope_type == "default":
            inv_freq, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        else:
            inv_freq, factor = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=case["seq_len"])
        case["attention_factor"] = float(factor)
        positions = torch.tensor([case["positions"]])
        assert positions.max() + 1 == case["seq_len"]  # what forward takes for the length
        module = LlamaRotaryEmbedding(config)
        cos, sin = module(torch.zeros(1), positions)
        # Within forward, the base of the dynamic type is computed in float32.
        torch.testing.assert_close(module.inv_freq, inv_freq, rtol=1e-5, atol=0.0)
        assert module.attention_scaling == factor
        out[f"{case['name']}_inv_freq"] = inv_freq.numpy()
        # As returned, cos and sin have the same half twice; one is kept.
        for table, values in (("cos", cos[0]), ("sin", sin[0])):
            first, second = values.chunk(2, dim=-1)
            assert torch.equal(first, second)
            out[f"{case['name']}_{table}"] = first.numpy()
    out["cases"] = json.dumps(cases)


def rotations(out: dict) -> None:
    """Rotated queries and keys: half-split, interleaved and partial."""
    import torch
    from transformers import GlmConfig, GPTNeoXConfig, LlamaConfig
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
    from transformers.models.glm import modeling_glm as glm
    from transformers.models.gpt_neox import modeling_gpt_neox as neox
    from transformers.models.gptj import modeling_gptj as gptj
    from transformers.models.llama import modeling_llama as llama

    q, k = (torch.from_numpy(out[name]) for name in ("q", "k"))
    sizes = {"hidden_size": 3 * HEAD_DIM, "num_attention_heads": 3}
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    half = {**rope, "partial_rotary_factor": 0.5}
    llama_rope = llama.LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=dict(rope)))
    neox_rope = neox.GPTNeoXRotaryEmbedding(GPTNeoXConfig(**sizes, rope_parameters=dict(half)))
    glm_rope = glm.GlmRotaryEmbedding(
        GlmConfig(**sizes, head_dim=HEAD_DIM, rope_parameters=dict(half))
    )
    for name, rows in POSITION_IDS.items():
        ids = torch.tensor(rows)
        out[f"position_ids_{name}"] = ids.numpy()
        cos, sin = llama_rope(q, ids)
        rotated = {
            "llama": llama.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=2),
            "deepseek": deepseek.apply_rotary_pos_emb_interleave(q, k, cos, sin, unsqueeze_dim=2),
            "neox": neox.apply_rotary_pos_emb(q, k, *neox_rope(q, ids), unsqueeze_dim=2),
            "glm": glm.apply_rotary_pos_emb(q, k, *glm_rope(q, ids), unsqueeze_dim=2),
        }
        for model, dim in (("gptj", HEAD_DIM), ("gptj_partial", HEAD_DIM // 2)):
            # As GPTJAttention.forward does it: the first `rotary_dim` rotate, the rest pass.
            table = gptj.create_sinusoidal_positions(int(ids.max()) + 1, dim)[ids]
            sin, cos = torch.split(table, dim // 2, dim=-1)
            rotated[model] = tuple(
                torch.cat([gptj.apply_rotary_pos_emb(x[..., :dim], sin, cos), x[..., dim:]], -1)
                for x in (q, k)
            )
        for model, (rotated_q, rotated_k) in rotated.items():
            out[f"{model}_{name}_q"] = rotated_q.numpy()
            out[f"{model}_{name}_k"] = rotated_k.numpy()


def multimodal(out: dict) -> None:
    """M-RoPE in sections (Qwen2-VL) and interleaved (Qwen3-VL); both rotate half-split."""
    import torch
    from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
    from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig

    q, ids = torch.from_numpy(out["q"]), torch.tensor(MROPE_POSITION_IDS)
    out["mrope_position_ids"] = ids.numpy()
    for model, module, config, rotary in (
        ("qwen2", qwen2, Qwen2VLTextConfig, qwen2.Qwen2VLRotaryEmbedding),
        ("qwen3", qwen3, Qwen3VLTextConfig, qwen3.Qwen3VLTextRotaryEmbedding),
    ):
        # Qwen3-VL gives each axis what its section says only if time has the most, as released.
        for section in ((4, 2, 2), (2, 3, 3)):
            rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": list(section)}
            sizes = {"hidden_size": 3 * HEAD_DIM, "num_attention_heads": 3, "head_dim": HEAD_DIM}
            cos, sin = rotary(config(**sizes, rope_parameters=rope))(q, ids)
            name = f"{model}_section_{'_'.join(map(str, section))}"
            rotated = module.apply_rotary_pos_emb(q, q, cos, sin, unsqueeze_dim=2)[0]
            out[f"{name}_q"] = rotated.numpy()


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

    torch.manual_seed(0)  # of the projections
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
    import transformers

    transformers.logging.set_verbosity_error()  # it warns of parameters that are used here
    rng = np.random.default_rng(1)
    rows = {name: rng.standard_normal(SHAPE).astype(np.float32) for name in "qk"}
    heads = {"q": normal(0, HEADS, N, WIDTH), "k": normal(1, HEADS, N, WIDTH)}
    for name, out, parts in (
        ("rope", rows, (frequencies, rotations, multimodal)),
        ("bias", {}, (t5, alibi, wav2vec2_bert_keys, xlnet)),
        ("content", heads, (deberta, inkling)),
        ("attention", {}, (attention,)),
    ):
        for part in parts:
            part(out)
        write_arrays(HERE / f"transformers_{name}.npz", out, "torch", "transformers")


if __name__ == "__main__":
    main()
