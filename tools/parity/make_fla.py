"""Write `fla.npz`: attention of PaTH and forgetting, as fla-core computes it.

It needs torch, einops and fla-core; the tests need none of them. Its naive references import torch
and einops alone, so they are loaded by their path: the package itself wants Triton. They compute in
float32.
"""

import importlib.util
from importlib.metadata import distribution

import numpy as np

from tools.parity.goldens import HERE, write_arrays

BATCH, N, HEADS, GROUPS, WIDTH = 2, 11, 4, 2, 8


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def reference(name: str):
    """The naive function of one of fla's operators."""
    path = distribution("fla-core").locate_file(f"fla/ops/{name}/naive.py")
    spec = importlib.util.spec_from_file_location(name, str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, f"naive_{name}")


def main() -> None:
    import torch

    out = {
        "q": normal(0, BATCH, N, HEADS, WIDTH),
        "k": normal(1, BATCH, N, GROUPS, WIDTH),
        "v": normal(2, BATCH, N, GROUPS, WIDTH),
        "w": normal(3, BATCH, N, HEADS, WIDTH),
        "beta": 2 / (1 + np.exp(-normal(4, BATCH, N, HEADS))),
        "log_gate": -np.log1p(np.exp(-normal(5, BATCH, N, HEADS))),
    }
    out["w"] /= np.linalg.norm(out["w"], axis=-1, keepdims=True)
    q, k, v, w, beta, gate = (torch.from_numpy(out[name]) for name in out)
    narrow = [x.float() for x in (q, k, v)]
    # Its path has a reflection for each key head; ours for each query head, so keys are repeated.
    repeated = [x.repeat_interleave(HEADS // GROUPS, dim=2) for x in narrow[1:]]
    path = reference("path_attn")(
        narrow[0],
        *repeated,
        w.float(),
        beta.float(),
        torch.zeros(BATCH, N, HEADS),
        scale=WIDTH**-0.5,
        chunk_size=4,
    )
    forgetting = reference("forgetting_attn")(*narrow, gate.float())
    for name, found in (("path", path), ("forgetting", forgetting)):
        out[name] = found.numpy()
    write_arrays(HERE / "fla.npz", out, "torch", "fla-core")


if __name__ == "__main__":
    main()
