"""What the matrices of a rotating function say: pairs and angles."""

import math

import torch


def rotation_of(call):
    """Pairs, angles at each position, and the factor of a kind of call; None where it is none."""
    matrices = call.matrices
    here = (matrices.abs() > 0).any(0)  # over positions
    columns = here.T.float()
    shared = (columns @ columns.T) > 0
    pairs, done = [], set()
    shared.fill_diagonal_(False)
    for i in torch.nonzero(shared.any(1)).flatten().tolist():
        partners = torch.nonzero(shared[i]).flatten().tolist()
        if not partners or i in done:
            continue
        if len(partners) != 1:
            return None
        j = partners[0]
        done |= {i, j}
        outs = torch.nonzero(here[:, i] | here[:, j]).flatten().tolist()
        if len(outs) != 2:
            return None
        block = matrices[:, outs][:, :, [i, j]]
        if (block[:, 0, 0] * block[:, 1, 1]).sum() < (block[:, 1, 0] * block[:, 0, 1]).sum():
            block = block.flip(1)
        if not torch.allclose(block[:, 0, 0], block[:, 1, 1], atol=1e-6):
            return None
        pairs.append(
            (i, j, torch.atan2(block[:, 1, 0], block[:, 0, 0]), block[:, :, 0].norm(dim=1))
        )
    if not pairs:
        return None
    factors = torch.stack([p[3] for p in pairs])
    return {
        "pairs": [(p[0], p[1]) for p in pairs],
        "outs": torch.nonzero(here.sum(1) > 1).flatten().tolist(),
        "angles": torch.stack([p[2] for p in pairs]),
        "factor": factors.mean().item() if (factors - factors.mean()).abs().max() < 1e-5 else None,
    }


def steps_of(angles):
    """The angle from each position to the next, where it is always the same, or None."""
    step = wrapped(angles[:, 1] - angles[:, 0])
    line = angles[:, :1] + step[:, None] * torch.arange(angles.shape[1])
    bound = 2e-3 * step.abs().clamp(max=1.0)[:, None]
    return step.abs() if (wrapped(line - angles).abs() <= bound + 1e-12).all() else None


def wrapped(x):
    return x - 2 * math.pi * torch.round(x / (2 * math.pi))


def pairing_of(pairs, count=None):
    """The name of the layout of pairs, with this many frequencies, zeros included."""
    members = sorted(x for pair in pairs for x in pair)
    offsets = {j - i for i, j in pairs}
    first = [i for i, _ in pairs]
    if offsets == {1} and all(i % 2 == members[0] % 2 for i in first) and len(pairs) > 1:
        return "interleaved"
    if len(offsets) != 1:
        return f"other: offsets {sorted(offsets)}"[:80]
    (offset,) = offsets
    whole = members == list(range(members[0], members[0] + len(members)))
    if offset == count or (whole and offset == len(pairs)):
        return "half"
    if whole and set(first) == {i for i in members if (i - members[0]) % (2 * offset) < offset}:
        return f"other: half in blocks of {2 * offset}"
    return f"other: i with i+{offset}"
