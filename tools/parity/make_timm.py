"""Write `timm.npz`: mixed RoPE of timm's vision transformers, on a grid.

Run by hand, in an environment of its own with NumPy, torch, torchvision and timm (the file says
which versions it came from); the tests need none of them:

    python tools/parity/make_timm.py
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

HEADS, WIDTH, GRID = 3, 8, (3, 4)


def main() -> None:
    import timm
    import torch
    from timm.layers.pos_embed_sincos import (
        apply_rot_embed_cat,
        get_mixed_freqs,
        init_random_2d_freqs,
    )

    torch.manual_seed(0)
    frequencies = init_random_2d_freqs(WIDTH, 1, HEADS)[:, 0]
    y, x = torch.meshgrid(*(torch.arange(n) for n in GRID), indexing="ij")
    q = torch.from_numpy(
        np.random.default_rng(0).standard_normal((HEADS, x.numel(), WIDTH)).astype(np.float32)
    )
    turned = apply_rot_embed_cat(q, get_mixed_freqs(frequencies, x.flatten(), y.flatten()))
    np.savez_compressed(
        HERE / "timm.npz",
        frequencies=frequencies.numpy(),
        positions=torch.stack([x.flatten(), y.flatten()], -1).numpy(),
        q=q.numpy(),
        turned=turned.numpy(),
        versions=json.dumps({m.__name__: m.__version__ for m in (torch, timm, np)}),
    )


if __name__ == "__main__":
    main()
