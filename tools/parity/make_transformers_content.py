"""Write `transformers_content.npz`: DeBERTa's disentangled bias and Inkling's relative logits.

Run by hand, in an environment of its own with NumPy, torch and transformers (the file says which
versions it came from); the tests need none of them:

    python tools/parity/make_transformers_content.py
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

HEADS, WIDTH, N = 2, 4, 40
DEBERTA = {"log": {"position_buckets": 8, "max_relative_positions": 20}, "plain": {}}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def deberta(out: dict) -> None:
    """Logits of one row, from the attention of DeBERTa v2 with the projections of the tables 1."""
    import torch
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    q, k = (torch.from_numpy(out[name]) for name in ("q", "k"))
    for name, options in DEBERTA.items():
        options = {"max_relative_positions": 6} | options
        span = options.get("position_buckets", options["max_relative_positions"])
        config = DebertaV2Config(
            hidden_size=HEADS * WIDTH,
            num_attention_heads=HEADS,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            share_att_key=False,
            **options,
        )
        layer = DisentangledSelfAttention(config).eval()
        table = torch.from_numpy(normal(2, 2 * span, HEADS * WIDTH))
        with torch.no_grad():
            for table_name, projection in (
                ("key_table", layer.pos_key_proj),
                ("query_table", layer.pos_query_proj),
            ):
                out[f"deberta_{name}_{table_name}"] = projection(table).numpy()
            bias = layer.disentangled_attention_bias(q, k, None, table, 3)
        out[f"deberta_{name}_bias"] = bias.numpy()


def inkling(out: dict) -> None:
    import torch
    from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

    layer = InklingRelativeLogits(3, 8)
    out["inkling_profiles"], out["inkling_r"] = normal(3, 3, 8), normal(4, 1, 5, HEADS, 3)
    layer.proj.data = torch.from_numpy(out["inkling_profiles"])
    positions = torch.arange(N - 5, N), torch.arange(N)
    with torch.no_grad():
        out["inkling_bias"] = layer(torch.from_numpy(out["inkling_r"]), *positions)[0].numpy()


def main() -> None:
    import torch
    import transformers

    out: dict = {"q": normal(0, HEADS, N, WIDTH), "k": normal(1, HEADS, N, WIDTH)}
    deberta(out)
    inkling(out)
    out["versions"] = json.dumps({m.__name__: m.__version__ for m in (torch, transformers, np)})
    np.savez_compressed(HERE / "transformers_content.npz", **out)


if __name__ == "__main__":
    main()
