"""Write `x_transformers.npz`: ALiBi, T5, CoPE and PoPE of x-transformers.

It needs torch and x-transformers; the tests need neither. Layout of queries and keys: [batch,
heads, positions, dim].
"""

import numpy as np

from tools.parity.goldens import HERE, write_arrays

DIM = 16


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def polar(out: dict) -> None:
    """PoPE: softplus magnitudes, `dim` frequencies, a phase bias (clipped to -2π..0) on keys."""
    import torch
    from x_transformers.x_transformers import PolarEmbedding, apply_polar_pos_emb

    module = PolarEmbedding(DIM, heads=2)
    bias = np.linspace(-7.0, 0.5, 2 * DIM, dtype=np.float32).reshape(2, 1, DIM)
    with torch.no_grad():
        module.learned_bias.copy_(torch.from_numpy(bias))
        out["rotary_q"] = normal(0, 2, 2, 12, DIM).astype(np.float32)
        out["rotary_k"] = normal(1, 2, 2, 12, DIM).astype(np.float32)
        freqs, clipped = module(torch.arange(12))
        q, k = (torch.from_numpy(out[name]) for name in ("rotary_q", "rotary_k"))
        out["pope_bias"] = bias
        out["pope_q"] = apply_polar_pos_emb(q, freqs.unsqueeze(1)).numpy()
        out["pope_k"] = apply_polar_pos_emb(k, freqs.unsqueeze(1) + clipped).numpy()


def biases(out: dict) -> None:
    import torch
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

    for heads in (1, 5):
        module = AlibiPositionalBias(heads, total_heads=heads)
        out[f"alibi_{heads}_of_{heads}"] = module(6, 9).numpy()  # [heads, 6 queries, 9 keys]
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


def main() -> None:
    out: dict = {}
    for part in (polar, biases, cope):
        part(out)
    write_arrays(HERE / "x_transformers.npz", out, "torch", "x-transformers")


if __name__ == "__main__":
    main()
