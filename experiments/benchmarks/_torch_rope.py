"""A worker that rotates queries and keys as Hugging Face's Llama; see `_torch_worker`.

Arrays are contiguous `[batch, heads, n, head_dim]`, and cosines are computed inside. With `out`,
rotated queries and keys, and their gradients, are written there, `[4, batch, n, heads, head_dim]`.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # pyrefly: ignore[missing-import]
import transformers  # pyrefly: ignore[missing-import]
from transformers.models.llama import modeling_llama as llama  # pyrefly: ignore[missing-import]

from experiments.benchmarks._torch_worker import serve


def round_of(sizes: Any) -> Callable[[], float]:
    """A function that rotates once, and returns its seconds."""
    _, n, heads, head_dim = sizes.shape
    config = transformers.LlamaConfig(
        hidden_size=heads * head_dim, num_attention_heads=heads, head_dim=head_dim,
        max_position_embeddings=n,
    )  # fmt: skip
    rotary, positions = llama.LlamaRotaryEmbedding(config), torch.arange(n)[None]
    rng = np.random.default_rng(0)
    arrays = [torch.from_numpy(rng.standard_normal(sizes.shape, np.float32)) for _ in range(4)]
    views = [x.to(getattr(torch, sizes.dtype)).transpose(1, 2).contiguous() for x in arrays]
    q, k = (x.requires_grad_(sizes.backward) for x in views[:2])

    def run() -> tuple[Any, ...]:
        out = llama.apply_rotary_pos_emb(q, k, *rotary(q, positions))
        return *out, *(torch.autograd.grad(out, (q, k), views[2:]) if sizes.backward else ())

    if sizes.out:
        np.save(sizes.out, [x.detach().transpose(1, 2).numpy() for x in run()])

    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return seconds


if __name__ == "__main__":
    serve(round_of, transformers)
