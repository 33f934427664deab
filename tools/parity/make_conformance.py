"""Check the positions of torch implementations, and write the outcome to `conformance.json`.

Run by hand with the newest transformers, x-transformers and rotary-embedding-torch.
All implementations are right, so that every failed check is a false alarm.
"""

import importlib
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from transformers import AutoConfig, DynamicCache, masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as with_sinks
from transformers.models.llama.modeling_llama import eager_attention_forward
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers import x_transformers

from jaxpe.conformance import alibi_bias, check_attention, check_rotary, t5_bias
from jaxpe.plans import LayerPlan, read_config, simple_plan

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from experiments.conformance.models import COMMON, GEMMA, GROUPED, LATENT, YARN, qwen_vl  # noqa: E402

OUT = ROOT / "tests" / "parity" / "conformance.json"
torch.manual_seed(0)
torch.set_grad_enabled(False)

CONFIGS = {
    "llama": GROUPED | {"model_type": "llama", "rope_theta": 5e5},
    "llama, YaRN": GROUPED | {"model_type": "llama", "rope_scaling": YARN},
    "llama, linear": GROUPED
    | {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama, llama3": GROUPED
    | {
        "model_type": "llama",
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    },
    "gpt_neox": COMMON | {"model_type": "gpt_neox", "rotary_pct": 0.25},
    "phi": COMMON | {"model_type": "phi", "partial_rotary_factor": 0.5},
    "cohere": COMMON | {"model_type": "cohere"},
    "glm4": GROUPED | {"model_type": "glm4", "partial_rotary_factor": 0.5},
    "gpt_oss": GROUPED | {"model_type": "gpt_oss", "sliding_window": 8},
    "qwen2_vl": qwen_vl("qwen2_vl_text", [4, 6, 6], type="mrope"),
    "qwen3_vl": qwen_vl("qwen3_vl_text", [8, 4, 4], rope_type="default", mrope_interleaved=True),
    "gptj": {"model_type": "gptj", "n_embd": 128, "n_head": 4, "n_layer": 2, "rotary_dim": 16},
    "mistral": GROUPED | {"model_type": "mistral", "sliding_window": 8},
    "gemma4": GEMMA,
    "deepseek_v3": LATENT,
}  # fmt: skip
PREFIX = {
    "llama": "Llama", "gpt_neox": "GPTNeoX", "phi": "Phi", "cohere": "Cohere", "glm4": "Glm4",
    "gpt_oss": "GptOss", "qwen2_vl": "Qwen2VL", "qwen3_vl": "Qwen3VLText", "mistral": "Mistral",
    "gemma4": "Gemma4Text", "deepseek_v3": "DeepseekV3",
}  # fmt: skip


def config_and_plans(name: str) -> tuple[Any, tuple[LayerPlan, ...]]:
    """Configuration as transformers has it, and its plans."""
    fields = CONFIGS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(fields))
        own = AutoConfig.for_model(**fields)
        return own, read_config(path).plan()


def modules(name: str) -> tuple[Any, Any]:
    """Module of a model in transformers, and its rotary embedding."""
    model = name.split(",")[0]
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    return module, getattr(module, f"{PREFIX[model]}RotaryEmbedding")(config_and_plans(name)[0])


def tensors(*arrays: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(np.ascontiguousarray(one)) for one in arrays)


def rotary(name: str) -> Callable[..., Any]:
    """`apply(x, positions)` of a model of transformers."""
    module, embedding = modules(name)

    def apply(x: np.ndarray, positions: np.ndarray) -> torch.Tensor:
        x, positions = tensors(x, positions)
        if positions.ndim == 3:
            positions = positions.permute(2, 0, 1)
        x = x.transpose(1, 2)
        if name == "gemma4":
            kind = "full_attention" if x.shape[-1] == 64 else "sliding_attention"
            cos, sin = embedding(x, positions, kind)
            return module.apply_rotary_pos_emb(x, cos, sin).transpose(1, 2)
        cos, sin = embedding(x, positions)
        rest = x[..., cos.shape[-1] :] if name == "phi" else x[..., :0]  # its layer splits the head
        x = x[..., : x.shape[-1] - rest.shape[-1]]
        turned = module.apply_rotary_pos_emb(x, x, cos, sin)[0]
        return torch.cat([turned, rest], dim=-1).transpose(1, 2)

    return apply


def gptj(x: np.ndarray, positions: np.ndarray) -> torch.Tensor:
    module = importlib.import_module("transformers.models.gptj.modeling_gptj")
    x, positions = tensors(x, positions)
    # create_sinusoidal_positions makes a table from 0; its frequencies at the positions asked for
    frequencies = 1.0 / 10000 ** (torch.arange(0, 16, 2, dtype=torch.int64).float() / 16)
    phases = positions[..., None].float() * frequencies
    turned = module.apply_rotary_pos_emb(x[..., :16], phases.sin(), phases.cos())
    return torch.cat([turned, x[..., 16:]], dim=-1)


def x_transformers_rotary(x: np.ndarray, positions: np.ndarray) -> torch.Tensor:
    x, positions = tensors(x, positions)
    frequencies, scale = x_transformers.RotaryEmbedding(32)(positions)
    return x_transformers.apply_rotary_pos_emb(x.transpose(1, 2), frequencies, scale).transpose(
        1, 2
    )


def rotary_embedding_torch(x: np.ndarray, positions: np.ndarray) -> torch.Tensor:
    x, positions = tensors(x, positions)
    frequencies = RotaryEmbedding(dim=32)(positions.reshape(-1).float())
    return apply_rotary_emb(frequencies.reshape(*positions.shape, 1, 32), x, seq_dim=1)


def mask_of(positions: Any, key_positions: Any, segments: Any, key_segments: Any) -> torch.Tensor:
    """Causal mask of documents, True for visible keys, `[batch, 1, n_q, n_k]`."""
    visible = positions[:, :, None] >= key_positions[:, None]
    if segments is not None:
        visible = visible & (segments[:, :, None] == key_segments[:, None])
        visible = visible & (key_segments[:, None] > 0)
    return visible[:, None]


class Heads(torch.nn.Module):
    """What the attention functions of transformers read of a layer."""

    def __init__(self, groups: int, scaling: float, sinks: Any = None):
        super().__init__()
        self.num_key_value_groups, self.scaling, self.sinks = groups, scaling, sinks
        self.is_causal, self.config = False, None


def attention(name: str, function: Any, *, decode: bool = False) -> Callable[..., Any]:
    """`attend(q, k, v, positions)` of a rotary model of transformers."""
    module, embedding = modules(name)
    config = config_and_plans(name)[0]
    groups = config.num_attention_heads // config.num_key_value_heads
    latent = name == "deepseek_v3"
    heads = Heads(groups, getattr(config, "head_dim", 32) ** -0.5)
    if latent:
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

        heads.scaling = DeepseekV3Attention(config, 0).scaling

    def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2)
        if latent:
            rest, part = torch.split(x, [config.qk_nope_head_dim, config.qk_rope_head_dim], dim=-1)
            cos, sin = embedding(x, positions)
            part = module.apply_rotary_pos_emb_interleave(part, part, cos, sin)[0]
            return torch.cat([rest, part], dim=-1)
        return module.apply_rotary_pos_emb(x, x, *embedding(x, positions))[0]

    def core(q: Any, k: Any, v: Any, visible: torch.Tensor) -> torch.Tensor:
        if function is sdpa_attention_forward:
            mask: Any = visible
        else:
            mask = torch.where(visible, 0.0, torch.finfo(q.dtype).min)
        return function(heads, q, k, v, mask, scaling=heads.scaling, dropout=0.0)[0]

    def attend(q, k, v, positions, *, key_positions=None, segments=None, key_segments=None):
        q, k, v, positions = tensors(q, k, v, positions)
        places = positions if key_positions is None else tensors(key_positions)[0]
        if segments is not None:
            (segments,) = tensors(segments)
            key_segments = segments if key_segments is None else tensors(key_segments)[0]
        visible = mask_of(positions, places, segments, key_segments)
        return core(rotated(q, positions), rotated(k, places), v.transpose(1, 2), visible)

    def steps(q, k, v, positions):
        q, k, v, positions = tensors(q, k, v, positions)
        cache, outputs = DynamicCache(), []
        for t in range(q.shape[1]):
            now = slice(t, t + 1)
            place = positions[:, now]
            keys, values = cache.update(rotated(k[:, now], place), v[:, now].transpose(1, 2), 0)
            visible = mask_of(place, positions[:, : t + 1], None, None)
            outputs.append(core(rotated(q[:, now], place), keys, values, visible))
        return torch.cat(outputs, dim=1)

    return steps if decode else attend


def sliding(q: Any, k: Any, v: Any, positions: Any) -> torch.Tensor:
    """Mistral with the mask that transformers makes."""
    config = config_and_plans("mistral")[0]
    config._attn_implementation = "eager"
    module, embedding = modules("mistral")
    q, k, v, positions = tensors(q, k, v, positions)
    mask = masking_utils.create_sliding_window_causal_mask(
        config=config, inputs_embeds=q.flatten(2), attention_mask=None, cache=None,
    )  # fmt: skip
    cos, sin = embedding(q, positions)
    q, k = module.apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    heads = Heads(2, 32**-0.5)
    return module.eager_attention_forward(heads, q, k, v.transpose(1, 2), mask, heads.scaling)[0]


def gpt_oss(sinks: np.ndarray) -> Callable[..., Any]:
    """GPT-OSS with learned sinks, which hides no keys itself."""
    module, embedding = modules("gpt_oss")
    heads = Heads(2, 32**-0.5, torch.from_numpy(sinks).float())

    def attend(q, k, v, positions):
        q, k, v, positions = tensors(q, k, v, positions)
        cos, sin = embedding(q, positions)
        q, k = module.apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        visible = mask_of(positions, positions, None, None)
        mask = torch.where(visible, 0.0, torch.finfo(q.dtype).min)
        return with_sinks(heads, q, k, v.transpose(1, 2), mask, heads.scaling)[0]

    return attend


def biased(bias: Callable[..., torch.Tensor], scale: float) -> Callable[..., Any]:
    """Attention with a bias on the logits and no rotation."""

    def attend(q, k, v, positions, *, segments=None):
        q, k, v, positions = tensors(q, k, v, positions)
        segments = None if segments is None else tensors(segments)[0]
        visible = mask_of(positions, positions, segments, segments)
        added = torch.where(visible, bias(positions, segments), torch.finfo(q.dtype).min)
        heads = Heads(1, scale)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return eager_attention_forward(heads, q, k, v, added, scale)[0]

    return attend


def bloom(positions: torch.Tensor, segments: Any) -> torch.Tensor:
    """BLOOM's bias: slope times the index of the key among unpadded keys."""
    kept = torch.ones_like(positions) if segments is None else (segments > 0).long()
    return build_alibi_tensor(kept, 4, torch.float32).reshape(len(positions), 4, 1, -1)


def x_alibi(positions: torch.Tensor, segments: Any) -> torch.Tensor:
    return x_transformers.AlibiPositionalBias(4).forward_custom_pos(positions)


def t5_of_transformers(table: np.ndarray) -> Callable[..., torch.Tensor]:
    config = AutoConfig.for_model("t5", d_model=128, d_kv=32, num_heads=4, is_decoder=True)
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    layer.relative_attention_bias.weight.copy_(torch.from_numpy(table))
    return lambda positions, segments: layer.compute_bias(positions.shape[1], positions.shape[1])


def t5_of_x_transformers(table: np.ndarray) -> Callable[..., torch.Tensor]:
    layer = x_transformers.RelativePositionBias(scale=1.0, causal=True, heads=4)
    layer.relative_attention_bias.weight.copy_(torch.from_numpy(table))
    return lambda positions, segments: layer(positions.shape[1], positions.shape[1])


def results() -> Iterator[tuple[str, Any]]:
    """Names of implementations and what the checks say of them."""
    own = "transformers, "
    for name in CONFIGS:
        if name in ("gptj", "deepseek_v3", "mistral"):
            continue
        for plan in config_and_plans(name)[1]:
            if name != "gpt_oss" or plan.window is None:
                label = f"{own}{name}" + (f", {plan.name}" if name == "gemma4" else "")
                yield label, check_rotary(rotary(name), plan)
    yield own + "gptj", check_rotary(gptj, config_and_plans("gptj")[1][0])
    plain = simple_plan(head_dim=32, pairing="interleaved")
    yield "x-transformers, rotary", check_rotary(x_transformers_rotary, plain)
    yield "rotary-embedding-torch", check_rotary(rotary_embedding_torch, plain)
    for name, functions in {
        "llama": (eager_attention_forward, sdpa_attention_forward),
        "llama, YaRN": (eager_attention_forward,), "deepseek_v3": (eager_attention_forward,),
    }.items():  # fmt: skip
        plan = config_and_plans(name)[1][0]
        for function in functions:
            keys = 4 if name == "deepseek_v3" else 2
            kind = "sdpa" if function is sdpa_attention_forward else "eager"
            yield f"{own}{name}, {kind}", check_attention(
                attention(name, function), plan, heads=4, key_value_heads=keys,
                paths={"decode": attention(name, function, decode=True)},
            )  # fmt: skip
    plan = config_and_plans("mistral")[1][0]
    yield own + "mistral, sliding mask", check_attention(sliding, plan, heads=4, key_value_heads=2)
    sinks, table = np.linspace(-1, 1, 4), np.random.default_rng(1).normal(size=(32, 4)).astype("f4")
    plan = next(one for one in config_and_plans("gpt_oss")[1] if one.window is None)
    yield (
        own + "gpt_oss, sinks",
        check_attention(gpt_oss(sinks), plan, heads=4, key_value_heads=2, sinks=sinks),
    )
    none = simple_plan(head_dim=32)._replace(kind="bias", turning=0)
    # These count tokens, so that rows with gaps are not theirs.
    counted = ("values", "left padding", "right padding", "packed")
    for name, bias in {own + "bloom": bloom, "x-transformers, ALiBi": x_alibi}.items():
        attend, only = biased(bias, 32**-0.5), counted if bias is bloom else ()
        yield name, check_attention(attend, none, heads=4, bias=alibi_bias(4), only=only)
    for name, made in {
        own + "t5": t5_of_transformers, "x-transformers, T5": t5_of_x_transformers,
    }.items():  # fmt: skip
        attend = biased(made(table), 1.0)
        yield (
            name,
            check_attention(attend, none, heads=4, bias=t5_bias(table), scale=1.0, only=counted),
        )


if __name__ == "__main__":
    found = {}
    for name, result in results():
        found[name] = {
            "passed": result.passed,
            "checks": sum(one.status == "passed" for one in result.checks),
            "faults": [one.text for one in result.faults],
        }
        print(name, found[name], flush=True)
    names = ("torch", "transformers", "x-transformers", "rotary-embedding-torch")
    versions = {name: importlib.metadata.version(name) for name in names}
    OUT.write_text(json.dumps({"versions": versions, "implementations": found}, indent=1) + "\n")
