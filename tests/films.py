"""A small corpus that commands are run on."""

from pathlib import Path

import numpy as np


def make_films(path: Path) -> Path:
    """120 labelled documents of four to seven words, the first of which tells the label."""
    rng = np.random.default_rng(0)
    words = [f"word{k}" for k in range(20)]
    lines = ["label\ttext"]
    for row in range(120):
        text = [("bad", "good")[row % 2], *rng.choice(words, rng.integers(3, 7))]
        lines.append(f"{row % 2}\t{' '.join(text)}")
    path.write_text("\n".join(lines) + "\n")
    return path
