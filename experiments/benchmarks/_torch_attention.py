"""A worker that attends in torch, one round a line of its input; see `_torch_worker`.

`way` is what computes causal attention, forward or forward and backward:

- sdpa: `scaled_dot_product_attention(is_causal=True)`, without an encoding;
- sdpa bias: with ALiBi's bias as a dense `attn_mask`, made before and not differentiated;
- sdpa learned bias: its gradient as well, which a learned bias such as T5's needs;
- flex: compiled `flex_attention` with ALiBi's bias as `score_mod`, and a causal block mask.
"""

import time
from collections.abc import Callable
from typing import Any

import torch  # pyrefly: ignore[missing-import]
from torch.nn.attention import flex_attention as flex  # pyrefly: ignore[missing-import]

from experiments.benchmarks._torch_worker import serve

attend = torch.nn.functional.scaled_dot_product_attention


def slopes_of(heads: int) -> Any:
    """ALiBi's slopes for a power of two of heads, on the default device."""
    return 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))


def dense_bias(n: int, heads: int, dtype: Any) -> Any:
    """ALiBi's bias `[1, heads, n, n]`, −∞ for later keys."""
    offsets = torch.arange(n)[:, None] - torch.arange(n)
    bias = -slopes_of(heads)[:, None, None] * offsets.abs()
    return bias.masked_fill(offsets < 0, float("-inf"))[None].to(dtype)


def compiled_flex(n: int, heads: int, device: str) -> Callable[..., Any]:
    slopes = slopes_of(heads)

    def with_bias(score, batch, head, i, j):
        return score - slopes[head] * (i - j)

    causal = flex.create_block_mask(lambda b, h, i, j: j <= i, None, None, n, n, device=device)
    run = torch.compile(flex.flex_attention)
    return lambda q, k, v: run(q, k, v, score_mod=with_bias, block_mask=causal)


def round_of(sizes: Any) -> Callable[[], float]:
    """A function that attends once, and returns its seconds."""
    torch.manual_seed(0)
    torch.set_default_device(sizes.device)
    shape, dtype = (1, sizes.heads, sizes.n, sizes.width), getattr(torch, sizes.dtype)
    q, k, v = (torch.randn(shape, dtype=dtype).requires_grad_(sizes.backward) for _ in range(3))
    cotangent, inputs = torch.randn(shape, dtype=dtype), [q, k, v]
    options: dict[str, Any] = {"is_causal": True}
    if "bias" in sizes.way:
        learned = sizes.backward and "learned" in sizes.way
        options = {"attn_mask": dense_bias(sizes.n, sizes.heads, dtype).requires_grad_(learned)}
        inputs += [options["attn_mask"]] * learned
    run = attend
    if sizes.way == "flex":
        run, options = compiled_flex(sizes.n, sizes.heads, sizes.device), {}

    def seconds() -> float:
        start = time.perf_counter()
        out = run(q, k, v, **options)
        if sizes.backward:
            torch.autograd.grad(out, inputs, cotangent)
        if sizes.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return seconds


if __name__ == "__main__":
    serve(round_of)
