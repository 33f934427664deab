"""Advice on which encoding to train: from stored results of training, never from stress."""

from jaxpe.report.text import Advice, site_page

# Ranks of the lowest held-out losses, and of no encoding, among 16 encodings on three tasks:
# experiments/results/stress_and_learning.json, which tests/report/test_advice.py compares.
TASKS = ("next word", "words at offsets", "tags")
RANKS = {
    "shaw": (1, 1, 2), "transformer_xl": (3, 2, 1), "rope": (4, 3, 5), "none": (16, 16, 16),
}  # fmt: skip
TRIED = ("shaw", "rope")  # the best, and the fastest of the three (benchmark_layers.json)


def training_advice(source: str, reason: str) -> Advice:
    """Step to take: train encodings that learned best in our tests, and compare them.

    Args:
        source: source of the corpus, as words of a command.
        reason: what the page found, which does not choose an encoding.
    """
    *best, (last, _) = RANKS.items()
    named = ", ".join(f"{name} ({sum(ranks) / len(ranks):.1f})" for name, ranks in best)
    runs = [f"jaxpe train {source} --encoding {name} --out run-{name}" for name in TRIED]
    return Advice(
        f"{reason} Choose by training. On our tasks ({', '.join(TASKS)}), small models had the "
        f"lowest losses with these of 16 encodings, by mean rank: {named}. Without an encoding "
        f"({last}) the loss was highest on each task. See {site_page('which-encoding')}.",
        " && ".join([*runs, f"jaxpe compare {' '.join(f'run-{name}' for name in TRIED)}"]),
    )
