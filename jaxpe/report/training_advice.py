"""Advice on which encoding to train: from stored results of training, never from stress."""

import dataclasses

from jaxpe._core.options import Source, command_line
from jaxpe.report.findings import Finding

# Ranks of the lowest held-out losses, and of no encoding, among 16 encodings on three tasks:
# experiments/results/stress_and_learning.json, which tests/report/test_advice.py compares.
TASKS = ("next word", "words at offsets", "tags")
RANKS = {
    "shaw": (1, 1, 2), "transformer_xl": (3, 2, 1), "rope": (4, 3, 5), "none": (16, 16, 16),
}  # fmt: skip
TRIED = ("shaw", "rope")  # the best, and the fastest of the three (benchmark_layers.json)
_READ = ("source", "tokenizer", "text_field", "skip_nulls", "data_dir")  # not of its counts


def training_finding(options: Source, *, found: bool) -> Finding:
    """Step to take: train encodings that learned best in our tests, and compare them.

    Args:
        options: the corpus.
        found: whether position has an effect in it, which does not choose an encoding.
    """
    means = {name: f"{sum(each) / len(each):.1f}" for name, each in RANKS.items()}
    best, second, third, _ = means
    read = Source(**{name: getattr(options, name) for name in _READ})
    base = command_line("train", dataclasses.replace(read))
    runs = [f"{base} --encoding {name} --out run-{name}" for name in TRIED]
    why = "No effect of position says nothing of word order"
    return Finding(
        "best of 16 encodings in jaxpe’s own runs",
        best,
        against=f"mean rank {means[best]}; no encoding {means['none']}",
        verdict="lowest losses on three tasks",
        sentence=f"Then {second} at {means[second]} and {third} at {means[third]}.",
        todo=f"{'Stress does not say which encoding trains best' if found else why}: choose by "
        "training.",
        paste=" && ".join([*runs, f"jaxpe compare {' '.join(f'run-{name}' for name in TRIED)}"]),
    )
