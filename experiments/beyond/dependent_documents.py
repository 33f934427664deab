"""Documents that are not independent: what is grouped, and tests that keep their level.

Nothing is published to compare with. Near-copies, pieces and authors make noise look like position,
since halves of a corpus share them. Here corpora are drawn from known laws, in which nothing of
position is true or something is. Counted are the documents that `dependent_groups` puts together,
and how often each test rejects: the significant rank, and the comparison of two corpora.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.beyond import position_corpora
from experiments.common import Run, main
from jaxpe import geometry
from jaxpe.data import dependent_groups, load_tokens
from jaxpe.geometry.counts.position_counts import fold_of_documents

LEVEL = 0.05
COPIES, CHANGED = 4, 0.1
FOLDS, NULL_FOLDS, NULLS = 16, 4, 4  # of counts that are compared
WORDS, LENGTH = 100, 12  # of corpora that are compared
Corpus = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # ids, mask, groups
Draw = Callable[[np.random.Generator], Corpus]


def experiment(run: Run) -> dict[str, Any]:
    few = run.quick
    return {
        "groups": grouped(few),
        "recall": recall(few),
        "rank": ranks(10 if few else 200),
        "comparison": comparisons(4 if few else 200),
    }


def rejected(p_values: list[float]) -> dict[str, float]:
    """Share of p-values at most the level, its Monte-Carlo error, and how many there are."""
    share = float(np.mean(np.array(p_values) <= LEVEL + 1e-9))
    error = float(np.sqrt(max(share * (1 - share), 0.25 / len(p_values)) / len(p_values)))
    return {"share": share, "error": error, "draws": len(p_values)}


def zipf(words: int) -> np.ndarray:
    weights = 1 / np.arange(1, words + 1)
    return weights / weights.sum()


def changed(rng: np.random.Generator, ids: np.ndarray, words: int, rate: float) -> np.ndarray:
    """Documents, each repeated, in which a share of the tokens is drawn anew."""
    ids = np.repeat(ids, COPIES, axis=0)
    other = rng.random(ids.shape) < rate
    ids[other] = rng.choice(words, other.sum(), p=zipf(words))
    return ids.astype(np.int32)


def grouped(few: bool) -> dict[str, Any]:
    """Groups of corpora at hand, and of independent documents, which have none."""
    rng = np.random.default_rng(0)
    corpora: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
    for name in ("stdlib",) if few else ("stdlib", "sst2", "imdb"):
        corpus = load_tokens(name)
        corpora[name] = corpus.ids, corpus.mask
    corpora["DNA, order 3"] = dna(rng, 4000, 128), None
    for words in (9, 50, 300):
        ids = rng.integers(0, words, (2000 if few else 8000, 64)).astype(np.int32)
        corpora[f"i.i.d., {words} words"] = ids, None
    found = {}
    for name, (ids, mask) in corpora.items():
        sizes = np.unique(dependent_groups(ids, mask), return_counts=True)[1]
        different = len(np.unique(np.where(True if mask is None else mask, ids, -1), axis=0))
        found[name] = {
            "documents": len(ids),
            "different": different,
            "groups": len(sizes),
            "grouped": int(sizes[sizes > 1].sum()),
            "largest": int(sizes.max()),
        }
        print(name, found[name], flush=True)
    return found


def dna(rng: np.random.Generator, documents: int, length: int) -> np.ndarray:
    """Letters of a Markov chain of order 3."""
    law = np.cumsum(rng.dirichlet(np.full(4, 2.0), 64), axis=1)
    ids = rng.integers(0, 4, (documents, length))
    for i in range(3, length):
        context = ids[:, i - 3] * 16 + ids[:, i - 2] * 4 + ids[:, i - 1]
        ids[:, i] = (rng.random((documents, 1)) > law[context][:, :3]).sum(axis=1)
    return ids.astype(np.int32)


def recall(few: bool) -> list[dict[str, Any]]:
    """Share of documents whose four near-copies are all in one group, and of groups of others."""
    rows = []
    for words, length in ((4, 128), (9, 24), (50, 12), (50, 24), (300, 12), (300, 24), (5000, 128)):
        rng = np.random.default_rng([words, length])
        count = 100 if few else 500
        ids = changed(rng, rng.choice(words, (count, length), p=zipf(words)), words, CHANGED)
        groups, truth = dependent_groups(ids), np.repeat(np.arange(count), COPIES)
        whole = [len(np.unique(groups[truth == k])) == 1 for k in range(count)]
        mixed = [len(np.unique(truth[groups == k])) > 1 for k in np.unique(groups)]
        row = {"words": words, "length": length}
        rows.append(row | {"whole": float(np.mean(whole)), "mixed": float(np.mean(mixed))})
    return rows


def ranks(draws: int) -> list[dict[str, Any]]:
    """Corpora of near-copies without position in which the rank is above 0."""
    rows = []
    for words, length in ((300, 24), (50, 24), (300, 12)):
        p: dict[str, list[float]] = {"content": [], "near-copies": [], "truth": []}
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            ids = changed(rng, rng.choice(words, (250, length), p=zipf(words)), words, CHANGED)
            labels = {
                "content": None,
                "near-copies": dependent_groups(ids),
                "truth": np.repeat(np.arange(250), COPIES),
            }
            for name, groups in labels.items():
                if name != "content" or seed < 30:
                    p[name].append(rank_p_value(ids, words, groups, seed))
        shares = {name: rejected(values) for name, values in p.items()}
        rows.append({"words": words, "length": length} | shares)
        print(rows[-1], flush=True)
    return rows


def rank_p_value(ids: np.ndarray, words: int, groups: np.ndarray | None, seed: int) -> float:
    key = jax.random.key(seed)
    found = geometry.significant_rank(ids, vocab_size=words, key=key, groups=groups, nulls=39)
    largest = np.asarray(found.null_eigenvalues)[:, 0]
    return float((1 + np.sum(largest >= float(found.eigenvalues[0]))) / (1 + len(largest)))


def drawn(
    rng: np.random.Generator,
    documents: int,
    *,
    mean: float = 2.0,
    topic: bool = False,
    order: float = 0.0,
) -> Corpus:
    """I.i.d. Zipf words in documents of log-normal lengths, whose logarithm has this mean.

    With `topic` words of longer documents are others, and so is a share `order` of the words at odd
    places.
    """
    size = (documents, LENGTH)
    lengths = np.clip(np.round(np.exp(rng.normal(mean, 0.6, documents))), 2, LENGTH).astype(int)
    ids = rng.choice(WORDS, size, p=zipf(WORDS))
    if topic:
        other = rng.random(size) < 0.6 * (lengths / LENGTH)[:, None]
        ids = np.where(other, rng.choice(WORDS, size, p=zipf(WORDS)[::-1]), ids)
    moved = (rng.random(size) < order) & (np.arange(LENGTH) % 2 == 1)
    ids = np.where(moved, (ids + 37) % WORDS, ids)
    return ids.astype(np.int32), np.arange(LENGTH) < lengths[:, None], None


def near_copies(rng: np.random.Generator, *, known: bool) -> Corpus:
    ids, mask, _ = drawn(rng, 300, mean=3.5)
    ids, mask = changed(rng, ids, WORDS, CHANGED), np.repeat(mask, COPIES, axis=0)
    return ids, mask, dependent_groups(ids, mask) if known else None


def authors(rng: np.random.Generator, *, known: bool) -> Corpus:
    """30 documents an author, who has words of their own at each position."""
    ids, mask, _ = drawn(rng, 1800)
    author = np.arange(1800) // 30
    own = rng.integers(0, WORDS, (60, LENGTH))[author]
    ids = np.where(rng.random(ids.shape) < 0.3, own, ids).astype(np.int32)
    return ids, mask, author.astype(np.int32) if known else None


def words(documents: int, **options: Any) -> Draw:
    return lambda rng: drawn(rng, documents, **options)


def copies(known: bool) -> Draw:
    return lambda rng: near_copies(rng, known=known)


def habits(known: bool) -> Draw:
    return lambda rng: authors(rng, known=known)


def of_kind(corpus: position_corpora.Corpus) -> Draw:
    return lambda rng: corpus.draw(rng)[:3]


ENDED = position_corpora.ended_by_word
# Each case draws two corpora from one generator; `True` says that their positions differ.
CASES: dict[str, tuple[bool, Draw, Draw]] = {
    "600 and 9,000 documents": (False, words(600), words(9000)),
    "other lengths": (False, words(2000, mean=1.6), words(2000, mean=2.4)),
    "other lengths, topic with length": (
        False, words(3000, mean=1.6, topic=True), words(3000, mean=2.4, topic=True)),
    "near-copies, grouped": (False, copies(True), copies(True)),
    "near-copies, not grouped": (False, copies(False), copies(False)),
    "authors, grouped": (False, habits(True), habits(True)),
    "authors, not grouped": (False, habits(False), habits(False)),
    "ended by a word": (False, of_kind(ENDED(0.15)), of_kind(ENDED(0.15))),
    "ended by a word, other hazard": (False, of_kind(ENDED(0.1)), of_kind(ENDED(0.2))),
    "repeats and none": (
        False, of_kind(position_corpora.neighbours(position_corpora.repeats(0.5))),
        of_kind(position_corpora.neighbours(position_corpora.repeats(0.0)))),
    "a weak difference": (True, words(2000), words(2000, order=0.06)),
    "a difference, other sizes": (True, words(600), words(9000, order=0.15)),
    "a difference, topic with length": (
        True, words(2000, mean=1.6, topic=True), words(2000, mean=2.4, topic=True, order=0.4)),
}  # fmt: skip


def comparisons(draws: int) -> list[dict[str, Any]]:
    """Pairs of corpora whose positional geometries a test tells apart."""
    rows = []
    for name, (differs, *corpora) in CASES.items():
        p: dict[str, list[float]] = {"observed": [], "position": []}
        for seed in range(draws):
            rng = np.random.default_rng([seed, 7])
            counts, nulls = zip(*(counted(draw(rng)) for draw in corpora), strict=True)
            for kind, own in (("observed", None), ("position", nulls)):
                options: Any = {"nulls": own, "dim": 2, "permutations": 199}
                key = jax.random.key(seed)
                found = geometry.compare_geometries(*counts, key=key, **options)
                p[kind].append(float(found.p_value))
        shares = {kind: rejected(values) for kind, values in p.items()}
        rows.append({"case": name, "differs": differs} | shares)
        print(rows[-1], flush=True)
    return rows


def counted(corpus: Corpus) -> tuple[Any, np.ndarray]:
    """Counts in folds, and those of null corpora, as `jaxpe count` makes them."""
    ids, mask, groups = corpus
    words = WORDS if ids.max() < WORDS else position_corpora.VOCAB
    options: dict[str, Any] = {"mask": mask, "vocab_size": words, "folds": FOLDS, "groups": groups}
    fold = np.asarray(fold_of_documents(ids, mask, folds=FOLDS, groups=groups))
    document, place = np.nonzero(mask)
    nulls = np.zeros((NULLS, NULL_FOLDS, LENGTH, words), np.int32)
    for number, table in enumerate(nulls):
        key = jax.random.fold_in(jax.random.key(0), number)
        moved = np.asarray(geometry.rotate_within_documents(key, ids, mask, groups=groups))
        np.add.at(table, (fold[document] % NULL_FOLDS, place, moved[document, place]), 1)
    return geometry.count_tokens(ids, **options), nulls


if __name__ == "__main__":
    main(experiment, "dependent_documents")
