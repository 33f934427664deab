"""Write `rotary_embedding_torch.npz`: rotary, xPos and axial rotations of rotary-embedding-torch.

It needs torch and rotary-embedding-torch; the tests need neither.

Layout of queries and keys: [batch, heads, positions, dim]; pairs are neighbours (interleaved).
A fresh module for every case: its caches know neither positions nor offsets apart.
"""

import json

import numpy as np

from tools.parity.goldens import HERE, write_arrays

DIM = 16
ROTATIONS = {
    "plain": {"settings": {"dim": DIM}, "offset": 0},
    "offset": {"settings": {"dim": DIM}, "offset": 5},
    "far_offset": {"settings": {"dim": DIM}, "offset": 1000},
    "partial": {"settings": {"dim": 8}, "offset": 0},
    "theta": {"settings": {"dim": DIM, "theta": 500_000}, "offset": 3},
    "interpolated": {"settings": {"dim": DIM, "interpolate_factor": 4.0}, "offset": 0},
    "interpolated_offset": {"settings": {"dim": DIM, "interpolate_factor": 4.0}, "offset": 6},
    "ntk": {"settings": {"dim": DIM, "theta_rescale_factor": 4.0}, "offset": 0},
}
XPOS = {
    "xpos": {"dim": DIM, "use_xpos": True},  # scale base 512
    "xpos_small_base": {"dim": DIM, "use_xpos": True, "xpos_scale_base": 8},
}
AXIAL = {
    "lang": {"settings": {"dim": 6, "freqs_for": "lang"}, "dims": [4, 3], "offsets": None},
    "lang_offsets": {"settings": {"dim": 6}, "dims": [4, 3], "offsets": [2, 7]},
    "lang_3d": {"settings": {"dim": 4}, "dims": [2, 3, 4], "offsets": None},
    "pixel": {
        "settings": {"dim": 6, "freqs_for": "pixel", "max_freq": 10},
        "dims": [4, 3],
        "offsets": None,
    },
    "pixel_256": {
        "settings": {"dim": 8, "freqs_for": "pixel", "max_freq": 256},
        "dims": [5, 2],
        "offsets": None,
    },
}


def main() -> None:
    import torch
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    tables = {"rotations": ROTATIONS, "xpos": XPOS, "axial": AXIAL}
    out: dict = {name: json.dumps(table) for name, table in tables.items()}
    rng = np.random.default_rng(0)
    out["q"] = rng.standard_normal((2, 2, 9, DIM)).astype(np.float32)
    out["k"] = rng.standard_normal((2, 2, 9, DIM)).astype(np.float32)
    q, k = torch.from_numpy(out["q"]), torch.from_numpy(out["k"])

    for name, case in ROTATIONS.items():
        module = RotaryEmbedding(**case["settings"])
        rotated = module.rotate_queries_or_keys(q, offset=case["offset"])
        out[f"{name}_q"] = rotated.detach().numpy()

    for name, settings in XPOS.items():
        module = RotaryEmbedding(**settings)
        rotated_q, rotated_k = module.rotate_queries_and_keys(q, k)
        out[f"{name}_q"] = rotated_q.detach().numpy()
        out[f"{name}_k"] = rotated_k.detach().numpy()

    for name, case in AXIAL.items():
        # Without its cache, which gives one axis the phases of the other, offset and all.
        settings = {**case["settings"], "cache_if_possible": False}
        module, offsets = RotaryEmbedding(**settings), case["offsets"]
        freqs = module.get_axial_freqs(*case["dims"], offsets=tuple(offsets) if offsets else None)
        x = rng.standard_normal((2, *case["dims"], DIM + 4)).astype(np.float32)
        out[f"axial_{name}_freqs"] = module.freqs.detach().numpy()
        out[f"axial_{name}_x"] = x  # [batch, *dims, DIM + 4]
        out[f"axial_{name}_rotated"] = apply_rotary_emb(freqs, torch.from_numpy(x)).detach().numpy()

    path = HERE / "rotary_embedding_torch.npz"
    write_arrays(path, out, "torch", "rotary-embedding-torch")


if __name__ == "__main__":
    main()
