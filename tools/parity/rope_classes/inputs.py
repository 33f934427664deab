"""Arguments that let a model of any kind run."""

import contextlib
import inspect

import torch

from .measure import TEXT


def sizes(config, name, default):
    value = getattr(config, name, default)
    return default if value is None else value


def text_inputs(config):
    ids = torch.arange(5, 5 + TEXT)[None]
    return {"input_ids": ids % max(int(sizes(config, "vocab_size", 1000)), 1)}


def image_shapes(config):
    patch = sizes(config, "patch_size", 16)
    patch = patch[-1] if isinstance(patch, (list, tuple)) else int(patch)
    size = sizes(config, "image_size", sizes(config, "img_size", 8 * patch))
    size = list(size) if isinstance(size, (list, tuple)) else [size, size]
    return patch, size[-2:]


def special(names, config):
    """Arguments of models whose forward asks for more than one."""
    patch, _ = image_shapes(config)
    if "pixel_position_ids" in names:
        grid = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(9), indexing="ij"), -1)
        yield (
            {
                "pixel_values": torch.zeros(1, 54, 3 * patch * patch),
                "pixel_position_ids": grid.reshape(1, 54, 2).flip(-1),
            },
            54,
        )
    if "merge_sizes" in names:
        yield (
            {
                "pixel_values": torch.zeros(48, 3 * patch * patch),
                "grid_thw": torch.tensor([[1, 6, 8]]),
                "merge_sizes": torch.tensor([1]),
            },
            48,
        )
    if "num_patches" in names:
        width = int(sizes(config, "hidden_size", 64))
        yield {"inputs_embeds": torch.zeros(1, TEXT, width), "num_patches": 6}, TEXT
    for name in ("num_channels", "num_codebooks", "audio_channels", "num_quantizers"):
        books = sizes(config, name, None)
        if "input_ids" in names and isinstance(books, int):
            ids = torch.ones(1, TEXT, books, dtype=torch.long)
            more = {"decoder_input_ids": ids} if "decoder_input_ids" in names else {}
            yield {"input_ids": text_inputs(config)["input_ids"] if more else ids, **more}, TEXT
            yield {"input_ids": ids.transpose(1, 2)}, TEXT
    if "audio_mel_mask" in names:
        yield (
            {
                "audio_mel": torch.zeros(1, 96, int(sizes(config, "input_feat_size", 128))),
                "audio_mel_mask": torch.zeros(1, 96, dtype=torch.bool),
            },
            None,
        )
    if "patch_embeds" in names:
        width = int(sizes(config, "hidden_size", 64))
        yield (
            {
                "inputs_embeds": torch.zeros(1, TEXT, width),
                "patch_embeds": torch.zeros(
                    1, TEXT, int(sizes(config, "hidden_size_global", width))
                ),
            },
            TEXT,
        )


def candidates(model, config):
    """Arguments to try, by the names in the signature."""
    names = list(inspect.signature(model.forward).parameters)
    main = getattr(model, "main_input_name", "input_ids")
    hidden = None
    for key in ("hidden_size", "d_model", "embed_dim", "dim"):
        with contextlib.suppress(Exception):  # by layer
            hidden = hidden or getattr(config, key, None)
    hidden = int(hidden[0] if isinstance(hidden, (list, tuple)) else hidden or 64)
    length = TEXT
    if "input_ids" in names:
        args = text_inputs(config)
        if "use_cache" in names:
            args["use_cache"] = False
        if "decoder_input_ids" in names:
            args["decoder_input_ids"] = args["input_ids"].clone()
        yield args, length
        yield {**args, "attention_mask": torch.ones(1, length, dtype=torch.long)}, length
    if "inputs_embeds" in names:
        yield {"inputs_embeds": torch.zeros(1, length, hidden)}, length
        if "encoder_hidden_states" in names:
            yield (
                {
                    "inputs_embeds": torch.zeros(1, length, hidden),
                    "encoder_hidden_states": torch.zeros(1, 5, hidden),
                },
                length,
            )
    yield from special(names, config)
    first = names[0]
    yield from grids(names, config)
    yield from images(names, main if main in names else first, config)
    yield from sounds(first, config)
    yield {first: torch.zeros(1, length, hidden)}, length
    yield {first: torch.zeros(length, hidden)}, length


def grids(names, config):
    """Patches with the shape of their images."""
    grid = next((n for n in names if "grid" in n), None)
    if grid is None:
        return
    patch, _ = image_shapes(config)
    channels = int(sizes(config, "num_channels", sizes(config, "in_channels", 3)))
    for times in (1, 2, int(sizes(config, "temporal_patch_size", 1))):
        pixels = torch.zeros(48, channels * times * patch * patch)
        yield {names[0]: pixels, grid: torch.tensor([[1, 6, 8]])}, 48
    pixels = torch.zeros(48, channels, patch, patch)
    yield {names[0]: pixels, grid: torch.tensor([[1, 6, 8]])}, 48


def images(names, image, config):
    patch, size = image_shapes(config)
    channels = int(sizes(config, "num_channels", sizes(config, "in_channels", 3)))
    if "pixel" in image or "image" in image:
        small = [4 * patch, 6 * patch]
        shapes = [small, [8 * patch, 8 * patch]]
        if size[0] * size[1] < 2500 * patch * patch:  # attention of more takes gigabytes
            shapes.insert(1, size)
        for shape in shapes:
            base = {image: torch.zeros(1, channels, *shape)}
            yield base, None
            for n in names:
                if "interpolate" in n:
                    yield {**base, n: True}, None
        size = [min(n, 8 * patch) for n in size]
        frames = int(sizes(config, "frames_per_clip", sizes(config, "num_frames", 2)))
        yield {image: torch.zeros(1, frames, channels, *size)}, None
        yield {image: torch.zeros(1, 48, channels * patch * patch)}, None


def sounds(first, config):
    for bins in ("num_mel_bins", "n_mels", "feature_size", "input_feat_per_channel", "input_size"):
        width = sizes(config, bins, None)
        if isinstance(width, int):
            steps = 2 * int(sizes(config, "max_source_positions", 64) or 64)
            for shape in ((1, 64, width), (1, width, 64), (1, width, steps), (width, 64)):
                yield {first: torch.zeros(*shape)}, None
    yield {first: torch.zeros(1, 16000)}, None
    yield {first: torch.zeros(1, 1, 16000)}, None
