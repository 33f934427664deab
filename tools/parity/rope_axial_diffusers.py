"""Rotations of diffusion transformers, by diffusers' own modules.

A rotation is made from a module and a configuration: a function of positions and vectors.
"""

import ast
import importlib
import inspect

import torch

from tools.parity.rope_axial_matrices import LONG, fields_of, kept, pairs

LTX_STEP = 2.0**-14  # halves of the base size; positions are exact in float32


def embeddings():
    return importlib.import_module("diffusers.models.embeddings")


def rows(positions, side=2):
    """Rows of positions in a grid of `side` places along each axis, the first axis slowest."""
    weights = [side**axis for axis in reversed(range(positions.shape[1]))]
    return (positions * torch.tensor(weights)).sum(-1).long()


def chosen(table, positions, side=2):
    """Rows of every part of a table."""
    at = rows(positions, side)
    return tuple(part[at] for part in table)


def nested(module, name):
    """A function that stands inside another of a module's file."""
    tree = ast.parse(inspect.getsource(module))
    found = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name and node not in tree.body
    )
    scope = dict(vars(module))
    exec(compile(ast.Module([found], []), module.__file__, "exec"), scope)
    return scope[name]


# ---- functions that turn vectors (1, tokens, heads, head) by the table of a module


def real(module):
    return lambda x, table: embeddings().apply_rotary_emb(x, table, sequence_dim=1)


def halves(module):
    apply = embeddings().apply_rotary_emb
    return lambda x, table: apply(x, table, sequence_dim=1, use_real_unbind_dim=-2)


def complex_pairs(x, table):
    return embeddings().apply_rotary_emb(x, table, use_real=False)


def by_pairs(module):
    """HiDream: the module divides heads that turn in part."""

    def turn(x, table):
        first, rest = x.split([2 * table.shape[-3], x.shape[-1] - 2 * table.shape[-3]], dim=-1)
        return torch.cat([module.apply_rope(first, first, table)[0], rest], dim=-1)

    return turn


def by_heads(module):
    return lambda x, table: module.apply_rope(x.transpose(1, 2), table).transpose(1, 2)


# ---- rotations


def ids(name, apply=real, *, field="axes_dims_rope", theta=10000, batch=False, whole=False):
    """Modules of ids by axis."""

    def build(module, c):
        widths = list(c[field] or (32, 32))
        extra = {"dim": sum(widths)} if whole else {}
        base = c[theta] if isinstance(theta, str) else theta
        rope = getattr(module, name)(**extra, theta=base, axes_dim=widths)
        return lambda positions, x: apply(module)(x, rope(positions[None] if batch else positions))

    return build


def own(name):
    return ids(name, theta="rope_theta")


def on_grid(name, arguments, apply=real, *, axes=3):
    """Modules of the shape of latents: rows of a grid of three patches along each axis."""

    def build(module, c):
        rope = getattr(module, name)(**arguments(c))
        latents = torch.zeros(1, 1, *[3] * axes)
        return lambda positions, x: apply(module)(x, chosen(rope(latents), positions, 3))

    return build


def wan(name):
    def build(module, c):
        head, turn = c["attention_head_dim"], nested(module, "apply_rotary_emb")
        rope = getattr(module, name)(attention_head_dim=head, patch_size=(1, 1, 1), max_seq_len=64)

        def rotate(positions, x):
            table = rope(torch.zeros(1, 1, 3, 3, 3))
            return turn(x, *[part[:, rows(positions, 3)] for part in table])

        return rotate

    return build


def wan_animate_2(module, c):
    head = c["dim"] // c["num_heads"]
    side = 2 * (head // 6)

    def rotate(positions, x):
        widths = (head - 2 * side, side, side)
        table = torch.cat([module.rope_params(64, width) for width in widths], dim=1)
        grid = torch.zeros(1, 8, *x.shape[2:])
        grid[:, rows(positions)] = x
        return module.rope_apply(grid, torch.tensor([[2, 2, 2]]), table)[:, rows(positions)]

    return rotate


def anyflow(name, *compressed):
    def build(module, c):
        rope = getattr(module, name)(c["attention_head_dim"], (1, 1, 1), *compressed, 64)

        def rotate(positions, x):
            table = rope._forward_full_frame(2, 2, 2, torch.device("cpu")).flatten(0, 2)
            turned = module.apply_rotary_emb(x.transpose(1, 2), table[rows(positions)][None, None])
            return turned.transpose(1, 2)

        return rotate

    return build


def sana_wm(module, c):
    rope = module.SanaWMRotaryPosEmbed(c["linear_head_dim"], (1, 1, 1), 64)

    def rotate(positions, x):
        table = rope((2, 2, 2))[:, :, rows(positions)]
        return module._apply_rotary_emb(x.permute(0, 2, 3, 1), table).permute(0, 3, 1, 2)

    return rotate


def hunyuan(name):
    def arguments(c):
        base = c["rope_theta"]
        return {"patch_size": 1, "patch_size_t": 1, "rope_dim": c["rope_axes_dim"], "theta": base}

    return on_grid(name, arguments)


def hunyuan_image(module, c):
    widths = c["rope_axes_dim"]
    arguments = {"patch_size": (1,) * len(widths), "rope_dim": widths, "theta": c["rope_theta"]}
    name = "HunyuanImageRotaryPosEmbed"
    return on_grid(name, lambda c: arguments, axes=len(widths))(module, c)


def framepack(module, c):
    rope = module.HunyuanVideoFramepackRotaryPosEmbed(1, 1, c["rope_axes_dim"], c["rope_theta"])
    table = rope(torch.arange(2), 2, 2, "cpu")
    return lambda positions, x: real(module)(x, chosen(table, positions))


def image(name, **more):
    def arguments(c):
        return {"dim": c["attention_head_dim"], "patch_size": 1, "theta": 10000.0, **more}

    return on_grid(name, arguments, halves, axes=2)


def cosmos(module, c):
    sizes = {"max_size": (8, 8, 8), "patch_size": (1, 1, 1), "rope_scale": c["rope_scale"]}
    arguments = {"hidden_size": c["attention_head_dim"], **sizes}
    return on_grid("CosmosRotaryPosEmbed", lambda c: arguments, halves)(module, c)


def qwen(name, apply):
    """Tables of complex numbers, an axis after another."""

    def build(module, c):
        rope = getattr(module, name)(theta=10000, axes_dim=list(c["axes_dims_rope"]))

        def rotate(positions, x):
            parts = getattr(rope, "freqs", None)
            if parts is None:
                parts = rope.pos_freqs.split([d // 2 for d in rope.axes_dim], dim=1)
            at = positions.T.long()
            table = torch.cat([p[one] for p, one in zip(parts, at, strict=True)], dim=-1)
            return getattr(module, apply)(x, table, use_real=False)

        return rotate

    return build


def mixed(name, field, *, ideogram=False):
    """Interleaved M-RoPE."""

    def build(module, c):
        head = c.get("head_dim") or c["attention_head_dim"]
        rope = getattr(module, name)(head, c["rope_theta"], tuple(c[field] or (24, 20, 20)))

        def rotate(positions, x):
            if ideogram:
                cos, sin = rope(positions[None])
            else:
                cos, sin = rope(positions.T[:, None], "cpu", torch.float32)
            return x * cos[:, :, None] + module._rotate_half(x) * sin[:, :, None]

        return rotate

    return build


def cogvideox(module, c):
    head, crop = c["attention_head_dim"], ((0, 0), (2, 2))
    table = embeddings().get_3d_rotary_pos_embed(head, crop, (2, 2), 2, use_real=True)
    return lambda positions, x: real(module)(x, chosen(table, positions))


def easyanimate(module, c):
    rope = module.EasyAnimateRotaryPosEmbed(1, c["attention_head_dim"])
    rope.get_resize_crop_region_for_grid = lambda *arguments: ((0, 0), (2, 2))
    table = rope(torch.zeros(1, 1, 2, 2, 2))
    return lambda positions, x: real(module)(x, chosen(table, positions))


def hunyuan_dit(module, c):
    """The table has the rows of an image one after another."""
    head, crop = c["attention_head_dim"], ((0, 0), (2, 2))
    table = embeddings().get_2d_rotary_pos_embed(head, crop, (2, 2))
    return lambda positions, x: real(module)(x, chosen(table, positions.flip(-1)))


def lumina(module, c):
    head = c["hidden_size"] // c["num_attention_heads"]
    table = embeddings().get_2d_rotary_pos_embed_lumina(head, 2, 2)
    return lambda positions, x: complex_pairs(x, table[tuple(positions.long().T)][None])


def lumina2(module, c):
    rope = module.Lumina2RotaryPosEmbed(10000, list(c["axes_dim_rope"]), (8, 8, 8))
    return lambda positions, x: complex_pairs(x, rope._get_freqs_cis(positions[None]))


def allegro(module, c):
    scales = [c[f"interpolation_scale_{axis}"] for axis in "thw"]
    head, crop, turn = c["attention_head_dim"], ((0, 0), (2, 2)), embeddings()
    table = turn.get_3d_rotary_pos_embed_allegro(head, crop, (2, 2), 2, interpolation_scale=scales)

    def rotate(positions, x):
        at = positions.T[:, None].long()
        return turn.apply_rotary_emb_allegro(x.transpose(1, 2), table[:3], at).transpose(1, 2)

    return rotate


def z_image(module, c):
    rope = module.RopeEmbedder(c["rope_theta"], list(c["axes_dims"]), [8] * 3)
    turn = nested(module, "apply_rotary_emb")
    return lambda positions, x: turn(x, rope(positions.long())[None])


def ernie(module, c):
    head = c["hidden_size"] // c["num_attention_heads"]
    rope = module.ErnieImageEmbedND3(head, c["rope_theta"], c["rope_axes_dim"])
    turn = nested(module, "apply_rotary_emb")
    return lambda positions, x: turn(x, rope(positions[None]))


def kandinsky(name):
    def build(module, c):
        # Kandinsky 5 has the same function, which rounds to bfloat16.
        from diffusers.models.transformers.transformer_kandinsky6 import apply_rotary

        rope, scale = getattr(module, name)(c["axes_dims"]), c.get("scale_factor", (1.0, 1.0, 1.0))
        shape = ((1, 2, 2, 2),) if name == "Kandinsky5RoPE3D" else ()
        table = rope(*shape, tuple(torch.arange(2) for _ in range(3)), scale)
        table = table.reshape(8, *table.shape[-4:])
        return lambda positions, x: apply_rotary(x, table[rows(positions)][None])

    return build


def joyimage(module, c):
    cls = module.JoyImageEditTransformer3DModel
    names = ("rope_dim_list", "theta", "hidden_size", "num_attention_heads", "rope_type")
    model = type("Model", (), {name: c[name] for name in names})()
    table, _ = cls.get_rotary_pos_embed(model, [2, 2, 2])
    turn = module._apply_rotary_emb
    return lambda positions, x: turn(x, x, [*chosen(table, positions)])[0]


def helios(module, c):
    rope = module.HeliosRotaryPosEmbed(c["rope_dim"], c["rope_theta"])
    table = rope(torch.arange(2)[None], 2, 2, "cpu")[0].flatten(1).T
    turn = module.apply_rotary_emb_transposed
    return lambda positions, x: turn(x, table[rows(positions)][None])


def minimax_h3(module, c):
    rope = module.MiniMaxH3RotaryPosEmbed(c["rope_freq_dim"], c["rope_theta"])
    return lambda positions, x: module._apply_rotary_emb(x, *rope(positions))


def ltx_rope(module, dim, **options):
    name = next(key for key in vars(module) if key.endswith("VideoRotaryPosEmbed"))
    return getattr(module, name)(dim, **options), "AudioVideo" in name


def by_vectors(turn, x, table):
    """All heads together; each unit vector is a sequence of its own."""
    flat, (cos, sin) = x.transpose(1, 2)[0], table
    return turn(flat, (cos.expand(len(flat), -1, -1), sin))[None].transpose(1, 2)


def ltx(module, c):
    dim = c["num_attention_heads"] * c["attention_head_dim"]
    rope, second = ltx_rope(module, dim, theta=c.get("rope_theta", 10000.0))
    turn = module.apply_interleaved_rotary_emb if second else module.apply_rotary_emb

    def rotate(positions, x):
        at = (1 + positions.T * LTX_STEP) / 2 * torch.tensor([[20.0], [2048.0], [2048.0]])
        table = rope(at[None]) if second else rope(x, video_coords=at[None])
        return by_vectors(turn, x, table)

    return rotate


def ltx_audio(module, c):
    dim = c["audio_num_attention_heads"] * c["audio_attention_head_dim"]
    rope, _ = ltx_rope(module, dim, theta=c["rope_theta"], modality="audio")

    def rotate(positions, x):
        table = rope(((1 + positions.T * LTX_STEP) / 2 * 20.0)[None])
        return by_vectors(module.apply_interleaved_rotary_emb, x, table)

    return rotate


# ---- time alone


def ace_step(module, c):
    table = module._ace_step_rotary_freqs(2, c["head_dim"], c["rope_theta"], "cpu", torch.float32)
    return lambda positions, x: halves(module)(x, table)


def stable_audio(module, c):
    width, options = c["attention_head_dim"] // 2, {"repeat_interleave_real": False}
    table = embeddings().get_1d_rotary_pos_embed(width, 2, use_real=True, **options)
    turn = halves(module)
    return lambda positions, x: torch.cat([turn(x[..., :width], table), x[..., width:]], dim=-1)


def stable_audio_3(module, c):
    rope = module.StableAudio3RotaryEmbedding(c["embed_dim"] // c["num_heads"] // 2)
    return lambda positions, x: module._apply_rotary_partial(x, rope(2, "cpu"))


def longcat_audio(module, c):
    rope = module.AudioDiTRotaryEmbedding(c["dit_dim"] // c["dit_heads"], 2048, base=100000.0)
    return lambda positions, x: module._apply_rotary_emb(x, [part[:2] for part in rope(x, 2)])


def minimax_music_3(module, c):
    table = module.MiniMaxMusic3RotaryEmbedding(c["rotary_dim"])(2, torch.device("cpu"))
    return lambda positions, x: module._apply_partial_rotary_emb(x[0], table)[None]


# ---- models: modules, changed sizes, and what is measured of them

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
        "hidream_image", ids("HiDreamImageEmbedND", by_pairs, batch=True), 3, FLUX),
    "QwenImageTransformer2DModel": (
        "qwenimage", qwen("QwenEmbedRope", "apply_rotary_emb_qwen"), 3, ONE),
    "QwenImage21Transformer2DModel": (
        "qwenimage21", qwen("QwenImage21Rope", "apply_rotary_emb_qwen"), 3, ONE),
    "NucleusMoEImageTransformer2DModel": (
        "nucleusmoe_image", qwen("NucleusMoEEmbedRope", "_apply_rotary_emb_nucleus"), 3,
        ONE),
    "HunyuanVideoTransformer3DModel": (
        "hunyuan_video", hunyuan("HunyuanVideoRotaryPosEmbed"), 3, HUNYUAN | SINGLE),
    "HunyuanVideo15Transformer3DModel": (
        "hunyuan_video15", hunyuan("HunyuanVideo15RotaryPosEmbed"), 3, HUNYUAN),
    "HunyuanVideoFramepackTransformer3DModel": (
        "hunyuan_video_framepack", framepack, 3, HUNYUAN | SINGLE),
    "MotifVideoTransformer3DModel": (
        "motif_video", hunyuan("MotifVideoRotaryPosEmbed"), 3, HUNYUAN | SINGLE),
    "HunyuanImageTransformer2DModel": (
        "hunyuanimage", hunyuan_image, 2,
        HUNYUAN | SINGLE | {"rope_axes_dim": [8, 16]}),
    "ErnieImageTransformer2DModel": (
        "ernie_image", ernie, 3,
        HIDDEN | {"rope_axes_dim": [4, 8, 12], "rope_theta": 500}),
    "JoyImageEditTransformer3DModel": (
        "joyimage", joyimage, 3, HIDDEN | {"rope_dim_list": [4, 8, 12], "theta": 500}),
    "HeliosTransformer3DModel": (
        "helios", helios, 3, VIDEO | {"rope_dim": [4, 8, 12], "rope_theta": 500.0}),
    "WanTransformer3DModel": ("wan", wan("WanRotaryPosEmbed"), 3, VIDEO),
    "WanVACETransformer3DModel": (
        "wan", wan("WanRotaryPosEmbed"), 3, VIDEO | {"vace_layers": [0, 2]}),
    "WanAnimateTransformer3DModel": ("wan_animate", wan("WanRotaryPosEmbed"), 3, VIDEO),
    "WanAnimate2Transformer3DModel": (
        "wan_animate_2", wan_animate_2, 3, {"dim": 48, "num_heads": 2, "num_layers": 5}),
    "ChronoEditTransformer3DModel": (
        "chronoedit", wan("ChronoEditRotaryPosEmbed"), 3, VIDEO),
    "SkyReelsV2Transformer3DModel": (
        "skyreels_v2", wan("SkyReelsV2RotaryPosEmbed"), 3, VIDEO),
    "SanaVideoTransformer3DModel": (
        "sana_video", wan("WanRotaryPosEmbed"), 3, VIDEO | {"attention_head_dim": 20}),
    "SanaWMTransformer3DModel": (
        "sana_wm", sana_wm, 3, {"linear_head_dim": 24, "num_layers": 5}),
    "AnyFlowTransformer3DModel": ("anyflow", anyflow("AnyFlowRotaryPosEmbed"), 3, VIDEO),
    "AnyFlowFARTransformer3DModel": (
        "anyflow_far", anyflow("AnyFlowCausalRotaryPosEmbed", (1, 2, 2)), 3, VIDEO),
    "CosmosTransformer3DModel": (
        "cosmos", cosmos, 3, WIDE | {"rope_scale": [1.0, 3.0, 2.0]}),
    "Cosmos3OmniTransformer": (
        "cosmos3", mixed("Cosmos3VLTextRotaryEmbedding", "rope_axes_dim"), 3,
        {"head_dim": 32, "num_hidden_layers": 5, "rope_scaling": {"mrope_section": [6, 5, 5]},
         "rope_axes_dim": [6, 5, 5], "rope_theta": 500.0}),
    "Ideogram4Transformer2DModel": (
        "ideogram4", mixed("Ideogram4MRoPE", "mrope_section", ideogram=True), 3,
        WIDE | SECTIONS),
    "CogVideoXTransformer3DModel": ("wan", cogvideox, 3, WIDE),
    "ConsisIDTransformer3DModel": ("wan", cogvideox, 3, WIDE),
    "EasyAnimateTransformer3DModel": ("easyanimate", easyanimate, 3, WIDE),
    "AllegroTransformer3DModel": (
        "allegro", allegro, 3,
        VIDEO | {"interpolation_scale_t": 1.5, "interpolation_scale_h": 2.5}),
    "HunyuanDiT2DModel": ("wan", hunyuan_dit, 2, VIDEO),
    "CogView4Transformer2DModel": (
        "cogview4", image("CogView4RotaryPosEmbed", rope_axes_dim=(3, 3)), 2, VIDEO),
    "GlmImageTransformer2DModel": (
        "glm_image", image("GlmImageRotaryPosEmbed"), 2, VIDEO),
    "LuminaNextDiT2DModel": ("wan", lumina, 2, HIDDEN),
    "Lumina2Transformer2DModel": (
        "lumina2", lumina2, 3, HIDDEN | {"axes_dim_rope": [4, 8, 12]}),
    "ZImageTransformer2DModel": ("z_image", z_image, 3, DIM),
    "BriaFibo2Transformer2DModel": ("bria_fibo2", z_image, 3, DIM),
    "PRXTransformer2DModel": (
        "prx", ids("PRXEmbedND", by_heads, field="axes_dim", theta="theta", batch=True,
                   whole=True),
        2, {"hidden_size": 48, "num_heads": 2, "depth": 5, "axes_dim": [8, 16], "theta": 500}),
    "Kandinsky5Transformer3DModel": (
        "kandinsky", kandinsky("Kandinsky5RoPE3D"), 3, KANDINSKY),
    "Kandinsky6Transformer3DModel": (
        "kandinsky6", kandinsky("Kandinsky6RoPE3D"), 3, SCALED),
    "Kandinsky6SRTransformer3DModel": (
        "kandinsky6_sr", kandinsky("Kandinsky6SRRoPE3D"), 3, SCALED),
    "LTXVideoTransformer3DModel": ("ltx", ltx, 3, LTX),
    "LTX2VideoTransformer3DModel": ("ltx2", ltx, 3, LTX2),
    "SanaWMLTX2RefinerTransformer3DModel": ("sana_wm_refiner", ltx, 3, LTX2),
    "MiniMaxH3Transformer3DModel": (
        "minimax_h3", minimax_h3, 3, VIDEO | {"rope_freq_dim": 3, "rope_theta": 500.0}),
    "AceStepTransformer1DModel": (
        "ace_step", ace_step, 1,
        {"head_dim": 24, "num_hidden_layers": 5, "rope_theta": 500.0}),
    "StableAudioDiTModel": ("wan", stable_audio, 1, VIDEO),
    "StableAudio3DiTModel": (
        "stable_audio3", stable_audio_3, 1,
        {"embed_dim": 48, "num_heads": 2, "depth": 5}),
    "LongCatAudioDiTTransformer": (
        "longcat_audio_dit", longcat_audio, 1,
        {"dit_dim": 48, "dit_heads": 2, "dit_depth": 5}),
    "MiniMaxMusic3Transformer1DModel": (
        "minimax_music3", minimax_music_3, 1, VIDEO | {"rotary_dim": 12}),
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
    is_ltx = build is ltx
    if is_ltx:
        head *= config["num_attention_heads"]
    if build is MODELS["HiDreamImageTransformer2DModel"][1]:  # two by default, three as released
        axes = len(config["axes_dims_rope"])
    found = pairs(build(module, config), head, axes, LTX_STEP if is_ltx else 1.0)
    layers = sum(config.get(name) or 0 for name in LAYERS)
    return {"part": "", "head": head, "layers": layers} | kept(found, every)


def audio(module, config, every):
    head = config["audio_num_attention_heads"] * config["audio_attention_head_dim"]
    found = pairs(ltx_audio(module, config), head, 1, LTX_STEP)
    return {"part": "audio", "head": head, "layers": config["num_layers"]} | kept(found, every)
