"""Diffusion transformers of diffusers: modules, changed sizes, and what is measured of them."""

import importlib
import inspect

import rope_axial_diffusion as rotations
from rope_axial_matrices import LONG, fields_of, kept, pairs

ONE = {"attention_head_dim": 24, "axes_dims_rope": [4, 8, 12], "num_layers": 5}
FLUX = ONE | {"num_layers": 2, "num_single_layers": 3}
FOUR = FLUX | {"axes_dims_rope": [4, 4, 8, 8], "rope_theta": 500}
VIDEO = {"attention_head_dim": 24, "num_layers": 5}
WIDE = {"attention_head_dim": 32, "num_layers": 5}
HUNYUAN = VIDEO | {"rope_axes_dim": [4, 8, 12], "rope_theta": 500.0}
SINGLE = {"num_single_layers": 3}
HIDDEN = {"hidden_size": 48, "num_attention_heads": 2, "num_layers": 5}
DIM = {"dim": 48, "n_heads": 2, "n_layers": 5, "axes_dims": [4, 8, 12], "rope_theta": 500.0}
KANDINSKY = {"axes_dims": [4, 8, 12], "num_visual_blocks": 5}
SCALED = KANDINSKY | {"scale_factor": [1.0, 1.5, 2.5]}
LTX = {"num_attention_heads": 2, "attention_head_dim": 14, "num_layers": 5}
LTX2 = LTX | {"audio_num_attention_heads": 2, "audio_attention_head_dim": 8, "rope_theta": 500.0}
SECTIONS = {"rope_theta": 500, "mrope_section": [6, 5, 5]}


def ids(name, apply=rotations.real, **more):
    return rotations.by_ids(name, apply, **more)


def own(name, **more):
    return ids(name, theta="rope_theta", **more)


# class: file, rotation, axes, changed sizes
# fmt: off
MODELS = {
    "FluxTransformer2DModel": ("flux", ids("FluxPosEmbed"), 3, FLUX),
    "ChromaTransformer2DModel": ("chroma", ids("FluxPosEmbed"), 3, FLUX),
    "Flux2Transformer2DModel": ("flux2", own("Flux2PosEmbed"), 4, FOUR),
    "Flux3Transformer2DModel": ("flux3", own("Flux3PosEmbed"), 4, FOUR),
    "Krea2Transformer2DModel": (
        "krea2", own("Krea2RotaryPosEmbed"), 3, ONE | {"rope_theta": 500.0}),
    "LongCatImageTransformer2DModel": ("longcat_image", ids("LongCatImagePosEmbed"), 3, FLUX),
    "OvisImageTransformer2DModel": ("ovis_image", ids("OvisImagePosEmbed"), 3, FLUX),
    "BriaTransformer2DModel": ("bria", own("BriaEmbedND"), 3, FLUX | {"rope_theta": 500}),
    "BriaFiboTransformer2DModel": (
        "bria_fibo", own("BriaFiboEmbedND"), 3, FLUX | {"rope_theta": 500}),
    "HiDreamImageTransformer2DModel": (
        "hidream_image", ids("HiDreamImageEmbedND", rotations.by_pairs, batch=True), 3, FLUX),
    "QwenImageTransformer2DModel": (
        "qwenimage", rotations.qwen("QwenEmbedRope", "apply_rotary_emb_qwen"), 3, ONE),
    "QwenImage21Transformer2DModel": (
        "qwenimage21", rotations.qwen("QwenImage21Rope", "apply_rotary_emb_qwen"), 3, ONE),
    "NucleusMoEImageTransformer2DModel": (
        "nucleusmoe_image", rotations.qwen("NucleusMoEEmbedRope", "_apply_rotary_emb_nucleus"), 3,
        ONE),
    "HunyuanVideoTransformer3DModel": (
        "hunyuan_video", rotations.hunyuan("HunyuanVideoRotaryPosEmbed"), 3, HUNYUAN | SINGLE),
    "HunyuanVideo15Transformer3DModel": (
        "hunyuan_video15", rotations.hunyuan("HunyuanVideo15RotaryPosEmbed"), 3, HUNYUAN),
    "HunyuanVideoFramepackTransformer3DModel": (
        "hunyuan_video_framepack", rotations.framepack, 3, HUNYUAN | SINGLE),
    "MotifVideoTransformer3DModel": (
        "motif_video", rotations.hunyuan("MotifVideoRotaryPosEmbed"), 3, HUNYUAN | SINGLE),
    "HunyuanImageTransformer2DModel": (
        "hunyuanimage", rotations.hunyuan_image, 2,
        HUNYUAN | SINGLE | {"rope_axes_dim": [8, 16]}),
    "ErnieImageTransformer2DModel": (
        "ernie_image", rotations.ernie, 3,
        HIDDEN | {"rope_axes_dim": [4, 8, 12], "rope_theta": 500}),
    "JoyImageEditTransformer3DModel": (
        "joyimage", rotations.joyimage, 3, HIDDEN | {"rope_dim_list": [4, 8, 12], "theta": 500}),
    "HeliosTransformer3DModel": (
        "helios", rotations.helios, 3, VIDEO | {"rope_dim": [4, 8, 12], "rope_theta": 500.0}),
    "WanTransformer3DModel": ("wan", rotations.wan("WanRotaryPosEmbed"), 3, VIDEO),
    "WanVACETransformer3DModel": (
        "wan", rotations.wan("WanRotaryPosEmbed"), 3, VIDEO | {"vace_layers": [0, 2]}),
    "WanAnimateTransformer3DModel": ("wan_animate", rotations.wan("WanRotaryPosEmbed"), 3, VIDEO),
    "WanAnimate2Transformer3DModel": (
        "wan_animate_2", rotations.wan_animate_2, 3, {"dim": 48, "num_heads": 2, "num_layers": 5}),
    "ChronoEditTransformer3DModel": (
        "chronoedit", rotations.wan("ChronoEditRotaryPosEmbed"), 3, VIDEO),
    "SkyReelsV2Transformer3DModel": (
        "skyreels_v2", rotations.wan("SkyReelsV2RotaryPosEmbed"), 3, VIDEO),
    "SanaVideoTransformer3DModel": (
        "sana_video", rotations.wan("WanRotaryPosEmbed"), 3, VIDEO | {"attention_head_dim": 20}),
    "SanaWMTransformer3DModel": (
        "sana_wm", rotations.sana_wm, 3, {"linear_head_dim": 24, "num_layers": 5}),
    "AnyFlowTransformer3DModel": ("anyflow", rotations.anyflow("AnyFlowRotaryPosEmbed"), 3, VIDEO),
    "AnyFlowFARTransformer3DModel": (
        "anyflow_far", rotations.anyflow("AnyFlowCausalRotaryPosEmbed", (1, 2, 2)), 3, VIDEO),
    "CosmosTransformer3DModel": (
        "cosmos", rotations.cosmos, 3, WIDE | {"rope_scale": [1.0, 3.0, 2.0]}),
    "Cosmos3OmniTransformer": (
        "cosmos3", rotations.mixed("Cosmos3VLTextRotaryEmbedding", "rope_axes_dim"), 3,
        {"head_dim": 32, "num_hidden_layers": 5, "rope_scaling": {"mrope_section": [6, 5, 5]},
         "rope_axes_dim": [6, 5, 5], "rope_theta": 500.0}),
    "Ideogram4Transformer2DModel": (
        "ideogram4", rotations.mixed("Ideogram4MRoPE", "mrope_section", ideogram=True), 3,
        WIDE | SECTIONS),
    "CogVideoXTransformer3DModel": ("wan", rotations.cogvideox, 3, WIDE),
    "ConsisIDTransformer3DModel": ("wan", rotations.cogvideox, 3, WIDE),
    "EasyAnimateTransformer3DModel": ("easyanimate", rotations.easyanimate, 3, WIDE),
    "AllegroTransformer3DModel": (
        "allegro", rotations.allegro, 3,
        VIDEO | {"interpolation_scale_t": 1.5, "interpolation_scale_h": 2.5}),
    "HunyuanDiT2DModel": ("wan", rotations.hunyuan_dit, 2, VIDEO),
    "CogView4Transformer2DModel": (
        "cogview4", rotations.image("CogView4RotaryPosEmbed", rope_axes_dim=(3, 3)), 2, VIDEO),
    "GlmImageTransformer2DModel": (
        "glm_image", rotations.image("GlmImageRotaryPosEmbed"), 2, VIDEO),
    "LuminaNextDiT2DModel": ("wan", rotations.lumina, 2, HIDDEN),
    "Lumina2Transformer2DModel": (
        "lumina2", rotations.lumina2, 3, HIDDEN | {"axes_dim_rope": [4, 8, 12]}),
    "ZImageTransformer2DModel": ("z_image", rotations.z_image, 3, DIM),
    "BriaFibo2Transformer2DModel": ("bria_fibo2", rotations.z_image, 3, DIM),
    "PRXTransformer2DModel": (
        "prx", ids("PRXEmbedND", rotations.by_heads, field="axes_dim", theta="theta", batch=True,
                   whole=True),
        2, {"hidden_size": 48, "num_heads": 2, "depth": 5, "axes_dim": [8, 16], "theta": 500}),
    "Kandinsky5Transformer3DModel": (
        "kandinsky", rotations.kandinsky("Kandinsky5RoPE3D"), 3, KANDINSKY),
    "Kandinsky6Transformer3DModel": (
        "kandinsky6", rotations.kandinsky("Kandinsky6RoPE3D"), 3, SCALED),
    "Kandinsky6SRTransformer3DModel": (
        "kandinsky6_sr", rotations.kandinsky("Kandinsky6SRRoPE3D"), 3, SCALED),
    "LTXVideoTransformer3DModel": ("ltx", rotations.ltx, 3, LTX),
    "LTX2VideoTransformer3DModel": ("ltx2", rotations.ltx, 3, LTX2),
    "SanaWMLTX2RefinerTransformer3DModel": ("sana_wm_refiner", rotations.ltx, 3, LTX2),
    "MiniMaxH3Transformer3DModel": (
        "minimax_h3", rotations.minimax_h3, 3, VIDEO | {"rope_freq_dim": 3, "rope_theta": 500.0}),
    "AceStepTransformer1DModel": (
        "ace_step", rotations.ace_step, 1,
        {"head_dim": 24, "num_hidden_layers": 5, "rope_theta": 500.0}),
    "StableAudioDiTModel": ("wan", rotations.stable_audio, 1, VIDEO),
    "StableAudio3DiTModel": (
        "stable_audio3", rotations.stable_audio_3, 1,
        {"embed_dim": 48, "num_heads": 2, "depth": 5}),
    "LongCatAudioDiTTransformer": (
        "longcat_audio_dit", rotations.longcat_audio, 1,
        {"dit_dim": 48, "dit_heads": 2, "dit_depth": 5}),
    "MiniMaxMusic3Transformer1DModel": (
        "minimax_music3", rotations.minimax_music_3, 1, VIDEO | {"rotary_dim": 12}),
}
# fmt: on
HEADS = ("attention_head_dim", "linear_head_dim", "head_dim")
HIDDENS = ("hidden_size", "dim", "embed_dim", "dit_dim")
NUMBERS = ("num_attention_heads", "n_heads", "num_heads", "dit_heads")
LAYERS = (
    "num_layers", "num_single_layers", "n_layers", "num_hidden_layers", "num_visual_blocks",
    "depth", "dit_depth",
)  # fmt: skip


def diffusion_models():
    """Cases of all models, as made by default and with sizes changed."""
    import diffusers

    for name, (file, build, axes, changes) in MODELS.items():
        file = "ace_step_transformer" if file == "ace_step" else f"transformer_{file}"
        module = importlib.import_module(f"diffusers.models.transformers.{file}")
        parameters = inspect.signature(getattr(diffusers, name).__init__).parameters.values()
        made = {p.name: p.default for p in parameters if p.default is not p.empty}
        assert set(changes) <= set(made), (name, set(changes) - set(made))
        for case, config in (("default", made), ("changed", made | changes)):
            every = LONG if case == "default" else 1
            groups = [measured(module, build, axes, config, every)]
            if "audio_num_attention_heads" in config:
                groups.append(audio(module, config, every))
            fields = fields_of(config)
            yield {"type": name, "case": case, "config": fields, "groups": groups}


def first(config, names):
    return next((config[name] for name in names if config.get(name)), None)


def measured(module, build, axes, config, every):
    head = first(config, HEADS)
    if "num_visual_blocks" in config:
        head = sum(config["axes_dims"])
    head = head or first(config, HIDDENS) // first(config, NUMBERS)
    ltx = build is rotations.ltx
    if ltx:
        head *= config["num_attention_heads"]
    if (
        build is MODELS["HiDreamImageTransformer2DModel"][1]
    ):  # two axes by default, three as released
        axes = len(config["axes_dims_rope"])
    found = pairs(build(module, config), head, axes, rotations.LTX_STEP if ltx else 1.0)
    layers = sum(config.get(name) or 0 for name in LAYERS)
    return {"part": "", "head": head, "layers": layers} | kept(found, every)


def audio(module, config, every):
    head = config["audio_num_attention_heads"] * config["audio_attention_head_dim"]
    found = pairs(rotations.ltx_audio(module, config), head, 1, rotations.LTX_STEP)
    return {"part": "audio", "head": head, "layers": config["num_layers"]} | kept(found, every)
