"""Write `transformers_attention.npz`: layers with a sink (gpt-oss) and with a gate (Qwen3-Next).

Run by hand, in an environment of its own with NumPy, torch and transformers (the file says which
versions it came from); the tests need none of them:

    python tools/parity/make_transformers_attention.py
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"

N, SIZES = 7, {"hidden_size": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def layers() -> dict:
    """Attention of both models: gpt-oss has no window in its second layer."""
    from transformers import GptOssConfig, Qwen3NextConfig
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    options = SIZES | {"attn_implementation": "eager", "num_hidden_layers": 2}
    return {
        "gpt_oss": GptOssAttention(GptOssConfig(**options), 1),
        "qwen3_next": Qwen3NextAttention(Qwen3NextConfig(**options), 1),
    }


def main() -> None:
    import torch
    import transformers

    rng = np.random.default_rng(0)
    draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape).astype(np.float32))  # noqa: E731
    x = draw(1, N, SIZES["hidden_size"])
    mask = torch.full((N, N), -torch.inf).triu(1)[None, None]
    out: dict = {"x": x.numpy()}
    for name, layer in layers().items():
        width = SIZES["head_dim"] // (2 if name == "gpt_oss" else 1)  # its cos and sin are halves
        nowhere = torch.ones(1, N, width), torch.zeros(1, N, width)
        for path, parameter in layer.named_parameters():
            parameter.data = 0.5 * draw(*parameter.shape)
            out[f"{name}.{path}"] = parameter.data.numpy()
        with torch.no_grad():
            found, weights = layer(x, nowhere, mask)
        out |= {f"{name}_output": found.numpy(), f"{name}_weights": weights.numpy()}
    out["versions"] = json.dumps({m.__name__: m.__version__ for m in (torch, transformers, np)})
    np.savez_compressed(HERE / "transformers_attention.npz", **out)


if __name__ == "__main__":
    main()
