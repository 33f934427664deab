"""Sequences aligned at a site: information against WebLogo, intervals, and the level of the test.

The sequences are examples of WebLogo 3 (binding sites of CAP, −10 boxes of E. coli, ends of human
introns) and the human donor sites of logomaker; both packages are needed. Information without a
correction is compared with both. Coverage of the intervals is simulated on known laws. The test of
`positions_standing_out` is held against shuffled sequences, and against a step, where one neighbour
of a position is equal to it and the other is not.
"""

import importlib
import importlib.metadata
import importlib.util
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import DataMissingError, Run, main
from jaxpe.analysis.corpus.documents import compacted
from jaxpe.analysis.corpus.sites import letter_information, positions_standing_out
from jaxpe.data import load_tokens, tokens_from_ids

# File of WebLogo, index of position 0, and what it is.
FILES = {
    "CAP sites": ("cap_dna.fa", 11, "binding sites of the protein CAP in E. coli"),
    "promoters": ("ecoli10.fa", 22, "promoters of E. coli, aligned at the −10 box"),
    "acceptors": ("intron-exon.fa", 21, "ends of introns; the exon begins at 0"),
    "donors": ("exon-intron.fa", 11, "ends of exons; the intron begins at 0"),
}
LAWS = {
    "equal": [0.25] * 4,
    "AT-rich": [0.35, 0.15, 0.15, 0.35],
    "one letter at 90 %": [0.9, 0.05, 0.03, 0.02],
    "one letter at 99 %": [0.99, 0.005, 0.003, 0.002],
}
SIZES = (49, 350, 4000)
# The fewest sequences for which bits are given, under uneven and under equal letters.
ALPHABETS = {
    "amino acids": "ACDEFGHIKLMNPQRSTVWY",
    "codons": [*map("".join, product("ACGT", repeat=3))],
}


def experiment(run: Run) -> dict[str, Any]:
    draws = 20 if run.quick else 1000
    folder = package_folder("weblogo") / "htdocs" / "examples"
    return {
        "packages": {name: importlib.metadata.version(name) for name in ("weblogo", "logomaker")},
        "files": {
            name: site(folder / file, origin, text) for name, (file, origin, text) in FILES.items()
        },
        "human donors": donors(),
        "coverage": coverage(draws),
        "level": {name: level(folder / FILES[name][0], draws) for name in ("CAP sites", "donors")},
        "step": step(draws),
        "draws": draws,
    }


def package_folder(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise DataMissingError(f"the package {name} is not installed")
    return Path(found.submodule_search_locations[0])


def site(path: Path, origin: int, text: str) -> dict[str, Any]:
    """Information and positions of one file, and the largest difference to both packages."""
    corpus, _ = compacted(load_tokens(path))
    columns = zip(corpus.ids.T, corpus.mask.T, strict=True)
    counts = np.stack([np.bincount(ids[m], minlength=corpus.vocab_size) for ids, m in columns])
    letters = letter_information(counts, corpus.tokens)
    assert letters is not None
    found = positions_standing_out(corpus, np.arange(len(corpus.ids)))
    return {
        "file": path.name,
        "text": text,
        "sequences": len(corpus.ids),
        "length": corpus.ids.shape[1],
        "origin": origin,
        "bits": letters.bits.T,
        "total": float(letters.bits[0].sum()),
        "standing_out": [
            {
                "position": x.position - origin,
                "tokens": [token._asdict() for token in x.tokens],
            }
            for x in found
        ],
        "difference": largest_difference(letters, counts, corpus.tokens),
    }


def largest_difference(letters: Any, counts: np.ndarray, tokens: list[str]) -> float:
    """Largest difference of uncorrected information to WebLogo and logomaker, in bits."""
    logo, pandas = map(importlib.import_module, ("logomaker", "pandas"))
    weblogo: Any = importlib.import_module("weblogo")

    counts = counts[:, [tokens.index(letter) for letter in "ACGT"]]
    seen = (counts > 0).sum(axis=1)
    plain = letters.bits[0] + (seen - 1) / (2 * np.log(2) * letters.documents)
    alphabet = weblogo.unambiguous_dna_alphabet
    theirs = weblogo.LogoData.from_counts(alphabet, counts, prior=None).entropy / np.log(2)
    table = pandas.DataFrame(counts.astype(float), columns=list("ACGT"))
    options = {"from_type": "counts", "to_type": "information", "pseudocount": 0}
    other = logo.transform_matrix(table, **options).sum(axis=1).to_numpy()
    return float(np.max(np.abs([plain - theirs, plain - other])))


def donors() -> dict[str, Any]:
    """Information of all human donor sites of logomaker: each sequence with its number of sites."""
    path = package_folder("logomaker") / "examples" / "datafiles" / "ss_sequences.txt"
    rows = [line.split() for line in path.read_text().splitlines() if line[:1] in "ACGU"]
    tokens: list[str] = [*"ACGU"]
    counts = np.zeros((9, 4), np.int64)
    for sequence, number in (row for row in rows if len(row) == 2):
        for position, letter in enumerate(sequence):
            counts[position, tokens.index(letter)] += int(number)
    letters = letter_information(counts, tokens)
    assert letters is not None
    return {"sites": int(counts[0].sum()), "origin": 3, "bits": letters.bits.T}


def coverage(draws: int) -> list[dict[str, Any]]:
    """Share of intervals that contain the information of a known law, and the bias of estimates."""
    rng, rows = np.random.default_rng(0), []
    cases = [(name, law, [*"ACGT"], SIZES) for name, law in LAWS.items()]
    for alphabet, tokens in ALPHABETS.items():
        ranks, least = np.arange(1.0, len(tokens) + 1), 5 * len(tokens)
        laws = {"equal": ranks**0, "1 / rank": 1 / ranks, "1 / rank²": ranks**-2}
        cases += [(f"{alphabet}, {x}", p / p.sum(), [*tokens], (least,)) for x, p in laws.items()]
    for name, law, tokens, sizes in cases:
        truth = float(np.log2(len(tokens)) + np.sum(np.array(law) * np.log2(law)))
        for size in sizes:
            counts = rng.multinomial(size, law, 4 * draws)
            letters = letter_information(counts, tokens)
            assert letters is not None
            bits, low, high = letters.bits
            covers = (low <= truth + 1e-6) & (truth <= high + 1e-6)
            rows.append(
                {
                    "law": name,
                    "sequences": size,
                    "truth": truth,
                    "covers": float(covers.mean()),
                    "bias": float(bits.mean() - truth),
                }
            )
    return rows


def level(path: Path, draws: int) -> float:
    """Share of shuffled corpora in which any position stands out."""
    corpus, _ = compacted(load_tokens(path))
    rng = np.random.default_rng(0)
    return share_with_any(
        corpus._replace(ids=rng.permuted(corpus.ids, axis=1)) for _ in range(draws)
    )


def step(draws: int) -> float:
    """Share of corpora of 400 sequences with two halves of different letters, 12 positions."""
    rng, half = np.random.default_rng(1), np.where(np.arange(12) < 6, 0, 2)
    return share_with_any(
        tokens_from_ids(half + rng.integers(0, 2, (400, 12))) for _ in range(draws)
    )


def share_with_any(corpora: Any) -> float:
    found = [bool(positions_standing_out(x, np.arange(len(x.ids)))) for x in corpora]
    return float(np.mean(found))


if __name__ == "__main__":
    main(experiment, "sequence_sites")
