"""LongRoPE2: divisors of frequencies on both sides of a critical dimension; NumPy alone."""

import math
from collections.abc import Sequence

from jaxpe.plans.scaling import LongRopeScaling


def critical_dimension(
    dim: int, *, original_max_position_embeddings: int, base: float = 10_000.0
) -> int:
    """Number of frequencies that complete a turn in training: ⌈(d/2) log_base(L0/2π)⌉.

    Half of d_tcd in Eq. (7) of LongRoPE2 (Shang et al. 2025), which counts entries.

    Args:
        dim: d, number of rotated entries.
        original_max_position_embeddings: L0, positions of the original context.
        base: θ of the frequencies, above 1.

    Phi-3-mini and Llama 3 8B, as in the paper:

    >>> critical_dimension(96, original_max_position_embeddings=2048)
    31
    >>> critical_dimension(128, base=5e5, original_max_position_embeddings=8192)
    35
    """
    turns = math.log(original_max_position_embeddings / (2 * math.pi)) / math.log(base)
    return min(max(math.ceil(dim / 2 * turns), 0), dim // 2)


def longrope2_scaling(
    dim: int,
    *,
    factor: float,
    original_max_position_embeddings: int,
    base: float = 10_000.0,
    critical: int | None = None,
    divisors: Sequence[float] | None = None,
) -> LongRopeScaling:
    """LongRoPE2: divisors searched for slow frequencies, NTK for fast ones (Shang et al. 2025).

    From index c on frequencies are divided by λ_k. Before it the base grows so that both meet:
    λ_k = λ_c^(k/c), Algorithm 2. Texts of up to L0 positions keep the original frequencies (Section
    3.3). The paper searches c below `critical_dimension`, and non-decreasing λ in [s, 2s]. The
    search is not part of this: its results are arguments. The defaults are where it starts: the
    theoretical c, and λ = s, the least that Eq. (10) allows. cos and sin have no factor (Fig. 10).

    Args:
        dim: number of rotated entries.
        factor: s, target length over L0.
        original_max_position_embeddings: L0, positions of the original context.
        base: θ of the frequencies.
        critical: c; 25 of 48 for Phi-3-mini and 30 of 64 for Llama 3 8B in the paper.
        divisors: λ of the frequencies from c on, `dim/2 − c` numbers.

    Raises:
        ValueError: a c outside 1 to dim/2, or another number of divisors.

    >>> scaling = longrope2_scaling(8, factor=4.0, original_max_position_embeddings=64, critical=2)
    >>> scaling.long_factor
    (1.0, 2.0, 4.0, 4.0)
    """
    half = dim // 2
    if critical is None:
        critical = critical_dimension(
            dim, base=base, original_max_position_embeddings=original_max_position_embeddings
        )
    if not 1 <= critical <= half:
        raise ValueError(f"critical is {critical}: pass 1 to {half}, an index of a frequency")
    slow = (float(factor),) * (half - critical) if divisors is None else tuple(divisors)
    if len(slow) != half - critical:
        raise ValueError(f"{len(slow)} divisors: pass {half - critical}, one from index {critical}")
    first = slow[0] if slow else factor
    fast = (first ** (k / critical) for k in range(critical))
    long = (*fast, *slow)
    return LongRopeScaling((1.0,) * half, long, original_max_position_embeddings, factor, 1.0)
