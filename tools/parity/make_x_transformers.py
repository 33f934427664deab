"""Write `x_transformers.npz`: rotary (xPos), ALiBi, T5, CoPE, PoPE and sinusoids of x-transformers.

Run by hand, in an environment of its own with NumPy, torch and x-transformers (the file says which
versions it came from); the tests need none of them:

    python tools/parity/make_x_transformers.py

Layout of queries and keys: [batch, heads, positions, dim]; rotary pairs are neighbours
(interleaved). x-transformers 2.31 has no FIRE and no KERPLE: see `make_papers.py`.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

DIM = 16
ROTARY = {
    "plain": {"dim": DIM},
    "partial": {"dim": DIM // 2},
    "interpolation": {"dim": DIM, "interpolation_factor": 4.0},
    "ntk": {"dim": DIM, "base_rescale_factor": 4.0},
    "base": {"dim": DIM, "base": 500_000},
    "xpos": {"dim": DIM, "use_xpos": True, "scale_base": 512},
    "xpos_small_base": {"dim": DIM, "use_xpos": True, "scale_base": 8},
    "xpos_partial": {"dim": DIM // 2, "use_xpos": True, "scale_base": 8},
}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def rotary(out: dict) -> None:
    """As Attention does it: queries by the scale, keys by its inverse."""
    import torch
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    out["rotary_q"] = normal(0, 2, 2, 12, DIM).astype(np.float32)
    out["rotary_k"] = normal(1, 2, 2, 12, DIM).astype(np.float32)
    out["rotary_settings"] = json.dumps(ROTARY)
    positions = {
        "arange": torch.arange(12),
        # Batch of two: packed documents, then a shuffled row.
        "custom": torch.tensor(
            [[0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3], [11, 3, 40, 7, 0, 1, 2, 90, 8, 9, 10, 60]]
        ),
    }
    q, k = (torch.from_numpy(out[name]) for name in ("rotary_q", "rotary_k"))
    for name, settings in ROTARY.items():
        module = RotaryEmbedding(**settings)
        out[f"rotary_{name}_inv_freq"] = module.inv_freq.numpy()
        for where, t in positions.items():
            out[f"rotary_positions_{where}"] = t.numpy()
            if where == "custom" and name not in ("plain", "partial", "xpos_small_base"):
                continue
            freqs, scale = module(t)  # [batch or 1, positions, dim], pairs repeated
            inverse = scale**-1.0
            case = f"rotary_{name}_{where}"
            out[f"{case}_q"] = apply_rotary_pos_emb(q, freqs, scale).numpy()
            out[f"{case}_k"] = apply_rotary_pos_emb(k, freqs, inverse).numpy()
            if torch.is_tensor(scale):
                out[f"{case}_scale"] = scale.numpy()


def polar(out: dict) -> None:
    """PoPE: softplus magnitudes, `dim` frequencies, a phase bias (clipped to -2π..0) on keys."""
    import torch
    from x_transformers.x_transformers import PolarEmbedding, apply_polar_pos_emb

    module = PolarEmbedding(DIM, heads=2)
    bias = np.linspace(-7.0, 0.5, 2 * DIM, dtype=np.float32).reshape(2, 1, DIM)
    with torch.no_grad():
        module.learned_bias.copy_(torch.from_numpy(bias))
        freqs, clipped = module(torch.arange(12))
        q, k = (torch.from_numpy(out[name]) for name in ("rotary_q", "rotary_k"))
        out["pope_bias"], out["pope_inv_freq"] = bias, module.inv_freq.numpy()
        out["pope_q"] = apply_polar_pos_emb(q, freqs.unsqueeze(1)).numpy()
        out["pope_k"] = apply_polar_pos_emb(k, freqs.unsqueeze(1) + clipped).numpy()


def biases(out: dict) -> None:
    import torch
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

    for heads, total in ((8, 8), (12, 12), (5, 5), (1, 1), (4, 8), (3, 5)):
        module = AlibiPositionalBias(heads, total_heads=total)
        out[f"alibi_{heads}_of_{total}"] = module(6, 9).numpy()  # [heads, 6 queries, 9 keys]
        out[f"alibi_{heads}_of_{total}_slopes"] = module.slopes[:, 0, 0].numpy()
    positions = torch.tensor([[0, 1, 2, 0, 1], [5, 4, 17, 3, 0]])
    out["alibi_positions"] = positions.numpy()
    out["alibi_custom"] = AlibiPositionalBias(3).forward_custom_pos(positions.float()).numpy()

    out["t5_table"] = normal(2, 32, 3).astype(np.float32)  # [buckets, heads]
    for causal in (False, True):
        module = RelativePositionBias(scale=1.0, causal=causal, heads=3)
        with torch.no_grad():
            module.relative_attention_bias.weight.copy_(torch.from_numpy(out["t5_table"]))
            name = f"t5_{'causal' if causal else 'bidirectional'}"
            out[f"{name}_40_40"] = module(40, 40).numpy()
            out[f"{name}_3_200"] = module(3, 200).numpy()  # the last 3 queries of 200
    module = RelativePositionBias(scale=64**0.5, heads=3)  # as AttentionLayers has it: √dim_head
    with torch.no_grad():
        module.relative_attention_bias.weight.copy_(torch.from_numpy(out["t5_table"]))
        out["t5_scaled_5_5"] = module(5, 5).numpy()


def cope(out: dict) -> None:
    """As Attend does it: gates of the scaled and masked logits, queries unscaled; float64."""
    import torch
    from x_transformers.x_transformers import CoPE

    n, dim = 10, 8
    q, k = (torch.from_numpy(normal(seed, 2, 2, n, dim)) for seed in (3, 4))
    logits = torch.einsum("bhid,bhjd->bhij", q, k) * dim**-0.5
    logits = logits.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.finfo(logits.dtype).max)
    out["cope_q"], out["cope_k"] = q.numpy(), k.numpy()
    for max_pos in (3, 16):
        module = CoPE(dim, heads=2, max_pos=max_pos).double()
        table = normal(5 + max_pos, max_pos, dim)
        with torch.no_grad():
            module.pos_emb.copy_(torch.from_numpy(table))
            bias = module(q, logits).numpy()
        out[f"cope_{max_pos}_table"], out[f"cope_{max_pos}_bias"] = table, bias


def sinusoids(out: dict) -> None:
    import torch
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding

    module = ScaledSinusoidalEmbedding(DIM)
    with torch.no_grad():
        for offset in (0, 5):
            embedding = module(torch.zeros(1, 12, DIM), offset=offset)
            out[f"scaled_sinusoidal_offset_{offset}"] = embedding.numpy()
        out["scaled_sinusoidal_scale"] = module.scale.numpy()


def main() -> None:
    # Here and above, so that the tests can collect this file without them.
    import torch

    out = {"versions": f"x-transformers {version('x-transformers')}, torch {torch.__version__}"}
    for part in (rotary, polar, biases, cope, sinusoids):
        part(out)
    np.savez_compressed(HERE / "x_transformers.npz", **out)


if __name__ == "__main__":
    main()
