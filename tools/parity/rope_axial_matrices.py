"""Rotations as matrices: which entries of a head turn together, and by which angle."""

import re

import torch

KEPT = re.compile(
    r"hidden_size|dim|depth|layers$|heads|window|indexes|patch_size|image_size|theta|rope|merge_size"
    r"|scale|section|axes|pos_emb_height|blocks$|rate$|rotary"
)
LONG = 5  # one pair of so many, of the defaults


def pairs(rotate, head, axes, step=1.0):
    """By axis, [entry, partner, angle per unit] of each entry that turns.

    `rotate` takes positions (P, axes) and vectors (1, P, heads, head); the unit vectors are heads.
    """
    positions = torch.zeros(axes + 1, axes)
    for axis in range(axes):
        positions[axis + 1, axis] = 1
    unit = torch.eye(head).expand(1, axes + 1, head, head).contiguous()
    turned = rotate(positions, unit)[0].double().transpose(-1, -2)  # matrices
    found = []
    for matrix in turned[1:]:
        matrix = matrix @ torch.linalg.inv(turned[0])  # positions may start at one
        axis = []
        for i, row in enumerate(matrix):
            others = row.clone()
            others[i] = 0
            partner = int(others.abs().argmax())
            if others[partner].abs() > 1e-9:
                assert (others.abs() > 1e-6).sum() <= 1
                axis.append([i, partner, float(torch.atan2(others[partner].abs(), row[i])) / step])
        found.append(axis)
    return found


def kept(found, every):
    """Counts of entries by axis, and of every so many of them partner and angle."""
    angles = {i: a for axis in found for i, _, a in axis}
    entries = [  # once for a pair, where both turn by the same angle
        [[i, j, float(f"{a:.8g}")] for i, j, a in axis if i < j or abs(a - angles[j]) > 1e-6 * a]
        for axis in found
    ]
    return {
        "counts": [len(axis) for axis in found],
        "entries": [axis[:: max(every, len(axis) // 20)] for axis in entries],
    }


def fields_of(values):
    """Numbers, lists of numbers and rotary entries."""

    def simple(value):
        return isinstance(value, int | float | str | dict) or (
            isinstance(value, list | tuple) and all(isinstance(v, int | float | str) for v in value)
        )

    return {k: v for k, v in values.items() if KEPT.search(k) and simple(v)}
