"""Write how transformers rotates by several axes of positions to `rope_sections.json`.

It needs the newest transformers and torch: see `README.md`. Each class with multimodal positions
rotates random queries at random positions of every axis.
"""

import importlib
import inspect

import torch
from transformers import CONFIG_MAPPING

from tools.parity.goldens import HERE, write_cases

N = 3  # positions
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
GLM = {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}, "head_dim": 128}
QUARTER = {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.25}}
# Module and start of the rotary class of each type, and fields where its defaults contradict.
TYPES = {
    "cohere_compass_text": (
        "cohere_compass", "CohereCompass",
        {"rope_parameters": {"full_attention": {**PLAIN, "mrope_section": [24, 20, 20]}}},
    ),
    "cosmos3_edge_text": ("cosmos3_edge", "Cosmos3EdgeText", {}),
    "ernie4_5_vl_moe_text": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeText", {}),
    "glm4v_moe_text": ("glm4v_moe", "Glm4vMoeText", GLM),
    "glm4v_text": ("glm4v", "Glm4vText", GLM),
    "glm_image_text": ("glm_image", "GlmImageText", GLM),
    "glm_ocr_text": ("glm_ocr", "GlmOcrText", GLM),
    "hunyuan_vl_text": (
        "hunyuan_vl", "HunYuanVL",
        {"rope_parameters": {**PLAIN, "mrope_section": [16, 16, 20, 12]}},
    ),
    "hy_v4_vl_text": ("hy_v4_vl", "HYV4VL", {}),
    "neomme": ("neomme", "NeoMME", {}),
    "paddleocr_vl_text": ("paddleocr_vl", "PaddleOCR", {}),
    "qwen2_5_omni_talker": ("qwen2_5_omni", "Qwen2_5Omni", {}),
    "qwen2_5_omni_text": ("qwen2_5_omni", "Qwen2_5Omni", {}),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VL", {}),
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VL", {}),
    "qwen3_5_moe_text": ("qwen3_5_moe", "Qwen3_5MoeText", {}),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5Text", {}),
    "qwen3_omni_moe_talker_text": ("qwen3_omni_moe", "Qwen3OmniMoeTalker", {"head_dim": 128}),
    "qwen3_omni_moe_text": ("qwen3_omni_moe", "Qwen3OmniMoeThinkerText", {"head_dim": 128}),
    "qwen3_vl_moe_text": ("qwen3_vl_moe", "Qwen3VLMoeText", {}),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLText", {}),
    "qwen4_exp_text": ("qwen4_exp", "Qwen4ExpText", QUARTER),
}  # fmt: skip
AXES = {"hunyuan_vl_text": 4, "neomme": 2}


def rotated(module, rotary, config, axes, layer_type):
    """Queries, positions and rotated queries of one class."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.randint(0, 40, (axes, 1, N), generator=generator)
    kind = () if layer_type is None else (layer_type,)
    cos, sin = rotary(config)(torch.zeros(1), positions, *kind)
    head = getattr(config, "qk_rope_head_dim", None) or getattr(config, "head_dim", None)
    head = head or config.hidden_size // config.num_attention_heads
    q = torch.randint(-8, 9, (1, 1, N, head), generator=generator) / 8
    try:
        out = module.apply_rotary_pos_emb(q, q, cos, sin)[0]
    except RuntimeError:  # the caller splits the head
        start, rest = q.split([cos.shape[-1], head - cos.shape[-1]], -1)
        out = torch.cat([module.apply_rotary_pos_emb(start, start, cos, sin)[0], rest], -1)
    rounded = [[float(f"{x:.7g}") for x in row] for row in out[0, 0].tolist()]
    return {"positions": positions[:, 0].T.tolist(), "q": q[0, 0].tolist(), "rotated": rounded}


def main():
    cases = []
    for model_type, (package, name, stated) in TYPES.items():
        module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
        rotary = getattr(module, f"{name}RotaryEmbedding")
        config = CONFIG_MAPPING[model_type](**stated)
        by_kind = "layer_type" in inspect.signature(inspect.unwrap(rotary.forward)).parameters
        for layer_type in sorted(set(config.layer_types)) if by_kind else [None]:
            case = {"type": model_type, "config": stated, "layer_type": layer_type}
            axes = AXES.get(model_type, 3)
            cases.append(case | rotated(module, rotary, config, axes, layer_type))
    write_cases(HERE / "rope_sections.json", cases, "transformers")


if __name__ == "__main__":
    main()
