"""Rotations of vision towers, by transformers' own modules, and their configurations."""

import importlib
import inspect

import torch

from tools.parity.rope_axial_matrices import LONG, fields_of, kept, pairs

STEP = 2.0**-4  # of coordinates from -1 to 1


def by_tokens(function):
    """For functions of vectors (tokens, heads, head)."""
    return lambda x, cos, sin: function(x[0], x[0], cos, sin)[0][None]


def by_heads(function):
    """For functions of vectors (batch, heads, tokens, head)."""
    return lambda x, cos, sin: function(x.transpose(1, 2), x.transpose(1, 2), cos, sin)[
        0
    ].transpose(1, 2)


def by_rows(function):
    """For functions of vectors (batch, heads, tokens, head), with angles of tokens alone."""
    return by_heads(lambda q, k, cos, sin: function(q, k, cos, sin, unsqueeze_dim=0))


def plain(module, rotary, config, apply, *, flip=False):
    rope = getattr(module, rotary)(config)

    def rotate(positions, x):
        at = positions.flip(-1) if flip else positions
        return apply(x, *rope(x, at))

    return rotate


def vision(name, rotary, function="apply_rotary_pos_emb_vision", *, by=by_tokens, flip=False):
    """Rotation of a tower whose module takes positions of height and width."""

    def build(module, config):
        return plain(module, rotary, config, by(getattr(module, function)), flip=flip)

    return name, build


def gemma4(module, config):
    rope = module.Gemma4VisionRotaryEmbedding(config)

    def rotate(positions, x):
        cos, sin = rope(x, positions[None])
        return module.apply_multidimensional_rope(x, cos, sin, positions[None])

    return rotate


def by_coordinates(rotary):
    """DINOv3: coordinates of patches in place of an image."""

    def build(module, config):
        rope = getattr(module, rotary)(config).eval()

        def rotate(positions, x):
            module.get_patches_center_coordinates = lambda *a, **k: positions * STEP
            pixels = torch.zeros(1, 3, config.patch_size, config.patch_size)
            return by_heads(module.apply_rotary_pos_emb)(x, *rope(pixels))

        return rotate

    return build


def llama4(module, config):
    table = module.Llama4VisionRotaryEmbedding(config).freqs_ci
    side = config.image_size // config.patch_size

    def rotate(positions, x):
        rows = positions[:, 1] * side + positions[:, 0]
        return module.vision_apply_rotary_emb(x, x, table[rows.long()])[0]

    return rotate


def vjepa2(hidden, heads):
    def build(module, config):
        attention = module.VJEPA2RopeAttention(
            config, getattr(config, hidden), getattr(config, heads)
        )

        def rotate(positions, x):
            at = [positions[:, axis][None, None] for axis in range(3)]
            return attention.apply_rotary_embeddings(x.transpose(1, 2), at).transpose(1, 2)

        return rotate

    return build


def sam(rotary, function="apply_rotary_pos_emb_2d", layer=None, window=0):
    def build(module, config):
        rope = getattr(module, rotary)(config)
        at = None
        if layer:
            at = getattr(module, layer).precompute_positions(config, window and config.window_size)

        def rotate(positions, x):
            where = positions
            if at is not None:  # rows of the layer's own positions
                side = round(len(at) ** 0.5)
                where = at[(positions[:, 1] * side + positions[:, 0]).long()]
            cos, sin = rope(x, where)
            apply = getattr(module, function)
            q = x.transpose(1, 2)
            return apply(q, q, cos=cos, sin=sin)[0].transpose(1, 2)

        return rotate

    return build


def efficientloftr(module, config):
    config.q_aggregation_kernel_size = config.q_aggregation_stride = 1
    rope = module.EfficientLoFTRRotaryEmbedding(config)

    def rotate(positions, x):
        cos, sin = rope(torch.zeros(1, 1, 2, 2))
        rows = (positions[:, 0] * 2 + positions[:, 1]).long()
        cos, sin = (part.reshape(1, 4, -1)[:, rows] for part in (cos, sin))
        return module.apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)[0]

    return rotate


QWEN = {"hidden_size": 48, "num_heads": 2, "depth": 6}
COMMON = {"hidden_size": 48, "num_attention_heads": 2, "num_hidden_layers": 6}
WIDE = COMMON | {"hidden_size": 56}
SINGLE = {"num_key_value_heads": 1}
THETA = {"rope_theta": 500.0, "rope_type": "axial"}
PLAIN = {"rope_theta": 500.0, "rope_type": "default"}
THETAS = {  # classes whose rotary entry is not of the common kind
    "efficientloftr": {"rope_theta": 500.0, "partial_rotary_factor": 2.0},
    "llama4_vision_model": PLAIN,
    "eomt_dinov3": PLAIN,
}
COORDINATES = COMMON | {"rope_theta": 50.0}
WINDOWS = {"fullatt_block_indexes": [1, 4], "window_size": 56, "patch_size": 7}
MEMORY = {
    "memory_attention_hidden_size": 96,
    "memory_attention_num_attention_heads": 2,
    "memory_attention_downsample_rate": 2,
    "memory_attention_num_layers": 3,
}
# model type: folder, rotation, changed sizes
# fmt: off
TOWERS = {
    "cohere_compass_vision": (
        *vision("cohere_compass", "CohereCompassVisionRotaryEmbedding"), QWEN),
    "dots3_note_vision_encoder": (
        *vision("dots3_note", "Dots3NoteVisionRotaryEmbedding"),
        {"hidden_size": 48, "num_attention_heads": 2, "adapter_in_dim": 48}),
    "ernie4_5_vl_moe_vision": (
        *vision("ernie4_5_vl_moe", "Ernie4_5_VLMoeVisionRotaryEmbedding"), QWEN),
    "exaone4_5_vision": (
        *vision("exaone4_5", "Exaone4_5_VisionRotaryEmbedding"), QWEN | WINDOWS | SINGLE),
    "glm4v_vision": (*vision("glm4v", "Glm4vVisionRotaryEmbedding"), QWEN),
    "glm4v_moe_vision": (*vision("glm4v_moe", "Glm4vMoeVisionRotaryEmbedding"), QWEN),
    "glm5_next_vision": (*vision("glm5_next", "Glm5NextVisionRotaryEmbedding"), QWEN),
    "glm_ocr_vision": (*vision("glm_ocr", "GlmOcrVisionRotaryEmbedding"), QWEN),
    "inkling2_vision": (*vision("inkling2", "Inkling2VisionRotaryEmbedding", flip=True), COMMON),
    "kimi_k25_vision": (*vision("kimi_k25", "Kimi_K25VisionRotaryEmbedding", flip=True), COMMON),
    "lfm3_vl_vision": (*vision("lfm3_vl", "Lfm3VlVisionRotaryEmbedding"), COMMON | SINGLE),
    "minimax_m3_vl_vision": (*vision("minimax_m3_vl", "MiniMaxM3VLVisionRotaryEmbedding"), WIDE),
    "mlcd_vision_model": (*vision("mlcd", "MLCDRotaryEmbedding"), COMMON),
    "muse_glimmer_vision": (
        *vision("muse_glimmer", "MuseGlimmerVisionRotaryEmbedding"),
        COMMON | {"pos_emb_height": 8, "pos_emb_width": 8}),
    "muse_spark_vision": (*vision("muse_spark", "MuseSparkVisionRotaryEmbedding"), COMMON),
    "paddleocr_vl_vision": (*vision("paddleocr_vl", "PaddleOCRVisionRotaryEmbedding"), COMMON),
    "pixtral": (
        *vision("pixtral", "PixtralVisionRotaryEmbedding", "apply_rotary_pos_emb", by=by_rows),
        WIDE),
    "qwen2_vl_vision": (
        *vision("qwen2_vl", "Qwen2VLVisionRotaryEmbedding"), QWEN | {"embed_dim": 64}),
    "qwen2_5_vl_vision": (*vision("qwen2_5_vl", "Qwen2_5_VLVisionRotaryEmbedding"), QWEN | WINDOWS),
    "qwen2_5_omni_vision_encoder": (
        *vision("qwen2_5_omni", "Qwen2_5OmniVisionRotaryEmbedding"), QWEN | WINDOWS),
    "qwen3_5_vision": (*vision("qwen3_5", "Qwen3_5VisionRotaryEmbedding"), QWEN),
    "qwen3_5_moe_vision": (*vision("qwen3_5_moe", "Qwen3_5MoeVisionRotaryEmbedding"), QWEN),
    "qwen3_omni_moe_vision_encoder": (
        *vision("qwen3_omni_moe", "Qwen3OmniMoeVisionRotaryEmbedding"), QWEN),
    "qwen3_vl_vision": (*vision("qwen3_vl", "Qwen3VLVisionRotaryEmbedding"), QWEN),
    "qwen3_vl_moe_vision": (*vision("qwen3_vl_moe", "Qwen3VLMoeVisionRotaryEmbedding"), QWEN),
    "qwen4_exp_vision": (*vision("qwen4_exp", "Qwen4ExpVisionRotaryEmbedding"), QWEN),
    "step3p5_vision": (*vision("step3p7", "Step3p7VisionRotaryEmbedding", flip=True), COMMON),
    "video_llama_3_vision": (*vision("video_llama_3", "VideoLlama3VisionRotaryEmbedding"), COMMON),
    "gemma4_vision": ("gemma4", gemma4, COMMON | {"head_dim": 32}),
    "dinov3_vit": ("dinov3_vit", by_coordinates("DINOv3ViTRopePositionEmbedding"), COORDINATES),
    "sapiens2": ("sapiens2", by_coordinates("Sapiens2RopePositionEmbedding"), COORDINATES),
    "eomt_dinov3": ("eomt_dinov3", by_coordinates("EomtDinov3RotaryEmbedding"), COMMON),
    "llama4_vision_model": ("llama4", llama4, COMMON),
    "vjepa2": (
        "vjepa2", vjepa2("hidden_size", "num_attention_heads"), COMMON | {"hidden_size": 28}),
    "sam3_vit_model": (
        "sam3", sam("Sam3ViTRotaryEmbedding", layer="Sam3ViTLayer"),
        COMMON | {"window_size": 4, "global_attn_indexes": [2, 5], "image_size": 168}),
    "sam2_video": ("sam2_video", sam("Sam2VideoVisionRotaryEmbedding"), MEMORY),
    "sam3_tracker_video": (
        "sam3_tracker_video", sam("Sam3TrackerVideoVisionRotaryEmbedding"), MEMORY),
    "edgetam_video": (
        "edgetam_video",
        sam("EdgeTamVideoVisionRotaryEmbedding", "apply_rotary_pos_emb_2d_self_attn"), MEMORY),
    "efficientloftr": (
        "efficientloftr", efficientloftr,
        {"hidden_size": 64, "num_attention_heads": 4, "num_attention_layers": 2,
         "out_features": [64, 64, 128, 64]}),
}
# fmt: on
# other rotations of the same file: part or window, and how
OTHERS = {
    "vjepa2": ("predictor", vjepa2("pred_hidden_size", "pred_num_attention_heads")),
    "sam3_vit_model": ("window", sam("Sam3ViTRotaryEmbedding", layer="Sam3ViTLayer", window=1)),
}
AXES = {"minimax_m3_vl_vision": 3, "vjepa2": 3}


def config_class(folder, model_type):
    module = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
    found = (c for _, c in inspect.getmembers(module, inspect.isclass))
    return next(c for c in found if getattr(c, "model_type", None) == model_type)


def windows(config):
    """Layers with windows, from 0, and patches of a window; None without them."""
    listed = ("fullatt_block_indexes", "global_attn_indexes")
    listed = next((name for name in listed if hasattr(config, name)), None)
    if listed:
        full = getattr(config, listed)
        found = [i for i in range(config.num_hidden_layers) if i not in full]
    else:
        kinds = getattr(config, "layer_types", None) or []
        found = [i for i, kind in enumerate(kinds) if kind == "window_attention"]
    if not found:
        return None
    if listed == "global_attn_indexes":
        return found, config.window_size**2
    from transformers.vision_utils import get_vision_window_index

    merge = getattr(config, "spatial_merge_size", 1)
    size = getattr(config, "window_size", 0)
    if not listed:  # Muse: windows have the size of the table, and patches are merged later
        merge, size = 1, config.pos_emb_height * config.patch_size
    grid = torch.tensor([[1, 64 * merge, 64 * merge]])
    ends = get_vision_window_index(grid, merge, size, config.patch_size)[1]
    return found, int(ends.diff().max())


def towers():
    """Cases of all towers, as made by default and with sizes changed."""
    for model_type, (folder, _, changes) in TOWERS.items():
        cls = config_class(folder, model_type)
        if "rope_parameters" in cls().to_dict():
            changes = changes | {"rope_parameters": dict(THETAS.get(model_type, THETA))}
        for case, config in (("default", cls()), ("changed", cls(**changes))):
            every = LONG if case == "default" else 1
            found = {"type": model_type, "case": case, "config": fields_of(config.to_dict())}
            windowed = windows(config)
            if windowed:
                found["windows"] = windowed
            yield found | {"groups": list(measured(model_type, config, every))}


def measured(model_type, config, every):
    folder, build, _ = TOWERS[model_type]
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    names = ("num_hidden_layers", "memory_attention_num_layers", "num_attention_layers")
    layers = next(getattr(config, name) for name in names if hasattr(config, name))
    made = [("", build, layers)]
    if model_type in OTHERS:
        made.append((*OTHERS[model_type], getattr(config, "pred_num_hidden_layers", layers)))
    for part, rotation, count in made:
        head, axes = head_of(config, model_type, part), AXES.get(model_type, 2)
        step = STEP if build.__qualname__.startswith("by_coordinates") else 1.0
        found = pairs(rotation(module, config), head, axes, step)
        yield {"part": part, "head": head, "layers": count} | kept(found, every)


def head_of(config, model_type, part):
    """Width of a head, as the class itself has it."""
    if hasattr(config, "memory_attention_hidden_size"):
        heads = config.memory_attention_num_attention_heads
        return config.memory_attention_hidden_size // (
            config.memory_attention_downsample_rate * heads
        )
    if model_type == "efficientloftr":  # before vectors are divided into heads
        return config.hidden_size
    if part == "predictor":
        return config.pred_hidden_size // config.pred_num_attention_heads
    hidden = config.embed_dim if model_type == "qwen2_vl_vision" else config.hidden_size
    return getattr(config, "head_dim", None) or hidden // config.num_attention_heads
