"""Rotations of diffusion transformers, by diffusers' own modules."""

import ast
import importlib
import inspect

import torch

LTX_STEP = 2.0**-14  # halves of the base size; positions are exact in float32


def embeddings():
    return importlib.import_module("diffusers.models.embeddings")


def rows(positions, side=2):
    """Rows of positions in a grid of `side` places along each axis, the first axis slowest."""
    weights = [side**axis for axis in reversed(range(positions.shape[1]))]
    return (positions * torch.tensor(weights)).sum(-1).long()


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


def by_pairs(module):
    """HiDream: the module divides heads that turn in part."""

    def turn(x, table):
        first, rest = x.split([2 * table.shape[-3], x.shape[-1] - 2 * table.shape[-3]], dim=-1)
        return torch.cat([module.apply_rope(first, first, table)[0], rest], dim=-1)

    return turn


def by_heads(module):
    return lambda x, table: module.apply_rope(x.transpose(1, 2), table).transpose(1, 2)


# ---- rotations: of a module and a configuration, functions of positions and vectors


def by_ids(name, apply=real, *, field="axes_dims_rope", theta=10000, batch=False, whole=False):
    """Modules of ids by axis."""

    def build(module, c):
        widths = list(c[field] or (32, 32))
        extra = {"dim": sum(widths)} if whole else {}
        base = c[theta] if isinstance(theta, str) else theta
        rope = getattr(module, name)(**extra, theta=base, axes_dim=widths)
        return lambda positions, x: apply(module)(x, rope(positions[None] if batch else positions))

    return build


def on_grid(name, arguments, apply=real, *, axes=3, wan=False):
    """Modules of the shape of latents: rows of a grid of three patches along each axis."""

    def build(module, c):
        rope = getattr(module, name)(**arguments(c))

        def rotate(positions, x):
            table, at = rope(torch.zeros(1, 1, *[3] * axes)), rows(positions, 3)
            if wan:
                return apply(module)(x, *[part[:, at] for part in table])
            return apply(module)(x, tuple(part[at] for part in table))

        return rotate

    return build


def wan(name):
    def arguments(c):
        head = c["attention_head_dim"]
        return {"attention_head_dim": head, "patch_size": (1, 1, 1), "max_seq_len": 64}

    return on_grid(name, arguments, lambda module: nested(module, "apply_rotary_emb"), wan=True)


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

    def rotate(positions, x):
        table = rope(torch.arange(2), 2, 2, "cpu")
        return real(module)(x, tuple(part[rows(positions)] for part in table))

    return rotate


def image(name, **more):
    def arguments(c):
        return {"dim": c["attention_head_dim"], "patch_size": 1, "theta": 10000.0, **more}

    return on_grid(name, arguments, halves, axes=2)


def cosmos(module, c):
    arguments = {
        "hidden_size": c["attention_head_dim"],
        "max_size": (8, 8, 8),
        "patch_size": (1, 1, 1),
        "rope_scale": c["rope_scale"],
    }
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
    def rotate(positions, x):
        table = embeddings().get_3d_rotary_pos_embed(
            c["attention_head_dim"], ((0, 0), (2, 2)), (2, 2), 2, use_real=True
        )
        return real(module)(x, tuple(part[rows(positions)] for part in table))

    return rotate


def easyanimate(module, c):
    rope = module.EasyAnimateRotaryPosEmbed(1, c["attention_head_dim"])
    rope.get_resize_crop_region_for_grid = lambda *arguments: ((0, 0), (2, 2))

    def rotate(positions, x):
        table = rope(torch.zeros(1, 1, 2, 2, 2))
        return real(module)(x, tuple(part[rows(positions)] for part in table))

    return rotate


def hunyuan_dit(module, c):
    head = c["attention_head_dim"]

    def rotate(positions, x):  # the table has the rows of an image one after another
        table = embeddings().get_2d_rotary_pos_embed(head, ((0, 0), (2, 2)), (2, 2))
        return real(module)(x, tuple(part[rows(positions.flip(-1))] for part in table))

    return rotate


def lumina(module, c):
    head = c["hidden_size"] // c["num_attention_heads"]

    def rotate(positions, x):
        table = embeddings().get_2d_rotary_pos_embed_lumina(head, 2, 2)
        at = positions.long()
        return embeddings().apply_rotary_emb(x, table[at[:, 0], at[:, 1]][None], use_real=False)

    return rotate


def lumina2(module, c):
    rope = module.Lumina2RotaryPosEmbed(10000, list(c["axes_dim_rope"]), (8, 8, 8))

    def rotate(positions, x):
        table = rope._get_freqs_cis(positions[None])
        return embeddings().apply_rotary_emb(x, table, use_real=False)

    return rotate


def allegro(module, c):
    def rotate(positions, x):
        table = embeddings().get_3d_rotary_pos_embed_allegro(
            c["attention_head_dim"],
            ((0, 0), (2, 2)),
            (2, 2),
            2,
            interpolation_scale=[c[f"interpolation_scale_{axis}"] for axis in "thw"],
        )
        turn, at = embeddings().apply_rotary_emb_allegro, positions.T[:, None].long()
        return turn(x.transpose(1, 2), table[:3], at).transpose(1, 2)

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

        def rotate(positions, x):
            table = rope(*shape, tuple(torch.arange(2) for _ in range(3)), scale)
            table = table.reshape(8, *table.shape[-4:])
            return apply_rotary(x, table[rows(positions)][None])

        return rotate

    return build


def joyimage(module, c):
    cls = module.JoyImageEditTransformer3DModel
    names = ("rope_dim_list", "theta", "hidden_size", "num_attention_heads", "rope_type")
    model = type("Model", (), {name: c[name] for name in names})()

    def rotate(positions, x):
        table, _ = cls.get_rotary_pos_embed(model, [2, 2, 2])
        return module._apply_rotary_emb(x, x, [part[rows(positions)] for part in table])[0]

    return rotate


def helios(module, c):
    rope = module.HeliosRotaryPosEmbed(c["rope_dim"], c["rope_theta"])

    def rotate(positions, x):
        table = rope(torch.arange(2)[None], 2, 2, "cpu")[0].flatten(1).T
        return module.apply_rotary_emb_transposed(x, table[rows(positions)][None])

    return rotate


def minimax_h3(module, c):
    rope = module.MiniMaxH3RotaryPosEmbed(c["rope_freq_dim"], c["rope_theta"])
    return lambda positions, x: module._apply_rotary_emb(x, *rope(positions))


def ltx(module, c):
    """All heads together; each unit vector is a sequence of its own."""
    dim = c["num_attention_heads"] * c["attention_head_dim"]
    rope = next(v for k, v in vars(module).items() if k.endswith("VideoRotaryPosEmbed"))
    second = "AudioVideo" in rope.__name__
    rope = rope(dim, theta=c.get("rope_theta", 10000.0))
    turn = module.apply_interleaved_rotary_emb if second else module.apply_rotary_emb

    def rotate(positions, x):
        at = (1 + positions.T * LTX_STEP) / 2 * torch.tensor([[20.0], [2048.0], [2048.0]])
        cos, sin = rope(at[None]) if second else rope(x, video_coords=at[None])
        flat = x.transpose(1, 2)[0]
        return turn(flat, (cos.expand(len(flat), -1, -1), sin))[None].transpose(1, 2)

    return rotate


def ltx_audio(module, c):
    heads, size = c["audio_num_attention_heads"], c["audio_attention_head_dim"]
    rope = next(v for k, v in vars(module).items() if k.endswith("VideoRotaryPosEmbed"))
    rope = rope(heads * size, theta=c["rope_theta"], modality="audio")

    def rotate(positions, x):
        cos, sin = rope(((1 + positions.T * LTX_STEP) / 2 * 20.0)[None])
        flat = x.transpose(1, 2)[0]
        turned = module.apply_interleaved_rotary_emb(flat, (cos.expand(len(flat), -1, -1), sin))
        return turned[None].transpose(1, 2)

    return rotate


# ---- time alone


def ace_step(module, c):
    table = module._ace_step_rotary_freqs(2, c["head_dim"], c["rope_theta"], "cpu", torch.float32)
    return lambda positions, x: halves(module)(x, table)


def stable_audio(module, c):
    width = c["attention_head_dim"] // 2
    table = embeddings().get_1d_rotary_pos_embed(
        width, 2, use_real=True, repeat_interleave_real=False
    )

    def rotate(positions, x):
        return torch.cat([halves(module)(x[..., :width], table), x[..., width:]], dim=-1)

    return rotate


def stable_audio_3(module, c):
    rope = module.StableAudio3RotaryEmbedding(c["embed_dim"] // c["num_heads"] // 2)
    return lambda positions, x: module._apply_rotary_partial(x, rope(2, "cpu"))


def longcat_audio(module, c):
    rope = module.AudioDiTRotaryEmbedding(c["dit_dim"] // c["dit_heads"], 2048, base=100000.0)
    return lambda positions, x: module._apply_rotary_emb(x, [part[:2] for part in rope(x, 2)])


def minimax_music_3(module, c):
    table = module.MiniMaxMusic3RotaryEmbedding(c["rotary_dim"])(2, torch.device("cpu"))
    return lambda positions, x: module._apply_partial_rotary_emb(x[0], table)[None]
