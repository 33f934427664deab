"""Groups of dependent documents: near-copies, known groups, and neighbours that are alike."""

import itertools

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from jaxpe._core.errors import InputError
from jaxpe.data import dependent_groups, load_tokens, tokens_from_ids
from jaxpe.data.corpora import groups as grouping
from jaxpe.data.corpora.groups import neighbour_similarity
from tests.data.reading import refused, write_lines
from tests.unchecked import unchecked


def zipf(words):
    weights = 1 / np.arange(1, words + 1)
    return weights / weights.sum()


def near_copies(seed, documents=200, *, words=300, n=24, copies=4, changed=0.1):
    """Each document several times, a share of its tokens drawn anew in each."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(rng.choice(words, (documents, n), p=zipf(words)), copies, axis=0)
    other = rng.random(ids.shape) < changed
    ids[other] = rng.choice(words, other.sum(), p=zipf(words))
    return ids.astype(np.int32), np.repeat(np.arange(documents), copies)


def share_together(groups, truth):
    return np.mean([len(np.unique(groups[truth == k])) == 1 for k in np.unique(truth)])


def share_mixed(groups, truth):
    return np.mean([len(np.unique(truth[groups == k])) > 1 for k in np.unique(groups)])


def false_pairs(ids, mask=None):
    """Documents that share a group with another of different content."""
    mask = np.ones(ids.shape, bool) if mask is None else mask
    different = {tuple(row[counted]) for row, counted in zip(ids, mask, strict=True)}
    return len(different) - len(np.unique(dependent_groups(ids.astype(np.int32), mask)))


COPIES = [(4, 128, 0.98), (50, 12, 0.82), (300, 24, 0.99), (5000, 24, 0.99)]


@pytest.mark.parametrize(("words", "n", "least"), COPIES)
def test_near_copies_are_together_and_others_are_not(words, n, least):
    ids, truth = near_copies(0, words=words, n=n)
    groups = dependent_groups(ids)
    assert share_together(groups, truth) >= least
    assert share_mixed(groups, truth) < 0.01


def edited(rng, row, words, changed=0.1):
    """A document with a third each of its changes replaced, deleted and put in."""
    draws, others = rng.random(len(row)) / changed, rng.choice(words, len(row), p=zipf(words))
    kept = []
    for word, draw, other in zip(row, draws, others, strict=True):
        kept += [word] if draw > 1 else [[other], [], [other, word]][int(3 * draw)]
    return kept


def padded(rows):
    """Documents of several lengths, as ids and mask."""
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    ids = np.zeros(mask.shape, np.int32)
    ids[mask] = np.concatenate(rows)
    return ids, mask


@pytest.mark.parametrize(("words", "n", "least"), [(50, 24, 0.9), (5000, 60, 0.99)])
def test_copies_with_words_put_in_and_deleted_are_together(words, n, least):
    rng = np.random.default_rng(1)
    rows = rng.choice(words, (120, n), p=zipf(words))
    ids, mask = padded([edited(rng, row, words) for row in rows for _ in range(4)])
    truth = np.repeat(np.arange(120), 4)
    groups = dependent_groups(ids, mask)
    assert share_together(groups, truth) >= least
    assert share_mixed(groups, truth) < 0.01


@pytest.mark.parametrize(("words", "n"), [(2, 128), (4, 24), (9, 8), (50, 24), (300, 8)])
def test_independent_documents_are_not_grouped(words, n):
    ids = np.random.default_rng(words).integers(0, words, (1500, n))
    assert false_pairs(ids) <= 1  # at most 1.5 are expected, and 0.2 were found


@pytest.mark.parametrize("words", [4, 300])
def test_short_documents_do_not_join_longer_ones_that_contain_them(words):
    rng = np.random.default_rng(words)
    lengths = np.exp(rng.normal(2, 0.8, (3000, 1)))
    ids = rng.choice(words, (3000, 40), p=zipf(words))
    assert false_pairs(ids, np.arange(40) < np.clip(lengths, 1, 40)) <= 1


def test_letters_that_depend_on_those_before_make_no_copies():
    """A Markov chain of order 3: pairs of letters, which are counted, do not tell its law."""
    rng = np.random.default_rng(0)
    law = np.cumsum(rng.dirichlet(np.full(4, 2.0), 64), axis=1)
    ids = rng.integers(0, 4, (3000, 24))
    for i in range(3, 24):
        context = ids[:, i - 3] * 16 + ids[:, i - 2] * 4 + ids[:, i - 1]
        ids[:, i] = (rng.random((3000, 1)) > law[context][:, :3]).sum(axis=1)
    assert false_pairs(ids) <= 3


def test_common_phrases_make_no_copies():
    rng = np.random.default_rng(0)
    phrases = rng.choice(5000, (300, 6), p=zipf(5000))
    ids = rng.choice(5000, (2000, 40), p=zipf(5000))
    for start in (3, 22):
        ids[:, start : start + 6] = phrases[rng.choice(300, 2000, p=zipf(300))]
    assert false_pairs(ids) == 0
    # Documents of which a phrase is more than half cannot be told from copies.
    assert false_pairs(ids[:, :10]) > 600


def test_text_that_all_documents_begin_with_makes_no_copies():
    rng = np.random.default_rng(0)
    ids = rng.integers(20, 400, (600, 32))
    ids[:, :16] = np.arange(16)
    assert false_pairs(ids) == 0
    # Words that tell positions: each place has one word with probability 0.6.
    ids = np.where(rng.random((600, 24)) < 0.6, np.arange(24), rng.integers(0, 24, (600, 24)))
    assert false_pairs(ids) == 0


@pytest.mark.parametrize(("length", "least"), [(5, 0.9), (12, 1.0)])
def test_pieces_join_a_longer_document_that_contains_them(length, least):
    rng = np.random.default_rng(0)
    whole = rng.choice(5000, (500, 40), p=zipf(5000))
    starts = rng.integers(0, 40 - length, 500)
    pieces = [row[k : k + length] for row, k in zip(whole, starts, strict=True)]
    groups = dependent_groups(*padded([*whole, *pieces]))
    assert np.mean(groups[:500] == groups[500:]) >= least
    assert len(np.unique(groups[:500])) == 500


def test_a_piece_of_two_documents_does_not_join_them():
    rng = np.random.default_rng(0)
    rows = [*rng.integers(0, 3000, (300, 40)), rng.integers(0, 3000, 8)]
    rows[0][3:11] = rows[1][20:28] = rows[300]
    groups = dependent_groups(*padded(rows))
    assert len(np.unique(groups)) == 300
    assert groups[300] in groups[:2]


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_short_pieces_join_where_most_documents_are_pieces(share):
    """Two words are in many documents by chance: they are pieces only if most of the others are."""
    rng = np.random.default_rng(0)
    whole = rng.choice(2000, (200, 30), p=zipf(2000))
    pieces = [row[k : k + 10] for row in whole for k in (2, 11, 19)]
    other = rng.choice(2000, (600, 10), p=zipf(2000))
    longer = [*pieces[: int(600 * share)], *other[int(600 * share) :]]
    groups = dependent_groups(*padded([*whole, *longer, *whole[:, 5:7]]))
    joined = np.isin(groups[-200:], groups[:800])
    assert joined.all() if share > 0.5 else joined.mean() < 0.1


def test_information_of_words_that_follow_each_other_or_have_a_place():
    """Of 400 documents, more than 12 share a pair that is common: excess over count of contexts."""
    rng = np.random.default_rng(0)
    ids = rng.integers(10, 60, (400, 6))
    ids[:100, 2], ids[:100, 3] = 1, 2  # the only occurrences of these words
    tokens = grouping._tokens(ids, np.ones(ids.shape, bool))
    found = np.exp(-grouping._information(tokens).reshape(400, 6))
    np.testing.assert_allclose(found[:100, 2], (100 - 12) / 400, rtol=1e-3)  # at its place
    np.testing.assert_allclose(found[:100, 3], (100 - 12) / 100, rtol=1e-3)  # after word 1
    counts = np.bincount(ids.ravel()) / ids.size
    np.testing.assert_allclose(found[100:], counts[ids[100:]], rtol=0.3)
    assert np.median(found[100:] / counts[ids[100:]]) == pytest.approx(1, rel=1e-6)


def test_scores_of_alignments_are_those_of_the_best_run():
    """Brute force over all runs, for every shift."""
    rng = np.random.default_rng(0)
    ids, mask = padded([rng.integers(0, 3, n) for n in (5, 7, 8, 11)])
    tokens = grouping._tokens(ids, mask)
    gain = rng.random(len(tokens.words)) + 0.5
    for one, other in itertools.combinations(range(4), 2):
        for shift in range(-4, 11):
            steps = [
                (
                    gain[tokens.begin[one] + k]
                    if ids[one, k] == ids[other, k + shift]
                    else np.log(0.19)
                )
                if 0 <= k + shift < mask[other].sum()
                else -np.inf
                for k in range(mask[one].sum())
            ]
            runs = [sum(steps[a:b]) for a, b in itertools.combinations(range(len(steps) + 1), 2)]
            pair = (np.array([x]) for x in (one, other, shift))
            found = grouping._alignment_scores(tokens, gain, *pair)[0]
            assert max(found, 0) == pytest.approx(max(0, *runs))


def test_labels_do_not_depend_on_padding_or_the_numbers_of_words():
    ids, _ = near_copies(2, 60, n=30)
    mask = np.ones(ids.shape, bool)
    mask[::7, 25:] = False
    expected = dependent_groups(ids, mask)
    np.testing.assert_array_equal(dependent_groups(3 * ids + 5, mask), expected)
    wide = np.pad(ids, ((0, 0), (0, 9)))
    np.testing.assert_array_equal(dependent_groups(wide, np.pad(mask, ((0, 0), (0, 9)))), expected)
    assert expected.dtype == np.int32
    assert (expected[expected] == expected).all()  # each label is one of the group's documents


def test_all_kinds_of_dependence_are_joined():
    rng = np.random.default_rng(3)
    ids = rng.integers(1, 500, (6, 30)).astype(np.int32)
    mask = np.ones(ids.shape, bool)
    ids[1, :9], mask[1, 9:] = ids[0, 4:13], False  # a piece of document 0
    ids[2] = ids[0]
    ids[2, 3], ids[2, 20] = 501, 502  # a near-copy of it
    known = np.array([9, 8, 7, 7, 5, 4])  # documents 2 and 3 are of one author
    groups = dependent_groups(ids, mask, groups=known)
    assert len(np.unique(groups[:4])) == 1
    assert len(np.unique(groups)) == 3
    with unchecked(), pytest.raises(InputError, match=r"`groups`.*one label for each of 6"):
        dependent_groups(ids, mask, groups=known[:3])


@pytest.mark.parametrize("documents", [1, 3])
def test_few_or_empty_documents(documents):
    ids = np.arange(8 * documents, dtype=np.int32).reshape(documents, 8)
    np.testing.assert_array_equal(dependent_groups(ids), np.arange(documents))
    for other, mask in ((ids[:, :0], None), (0 * ids, None), (ids, ids < 0)):
        assert dependent_groups(other, mask).tolist() == [0] * documents


def clustered(seed, *, share=0.3, each=30):
    """Documents of authors, who take a share of their words from ten of their own."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(300, (900, 20), p=zipf(300))
    author = np.arange(900) // each
    own = rng.integers(0, 300, (author.max() + 1, 10))[
        author[:, None], rng.integers(0, 10, (900, 20))
    ]
    return np.where(rng.random(ids.shape) < share, own, ids).astype(np.int32), author


def test_neighbours_of_one_author_are_alike():
    ids, author = clustered(0)
    found = neighbour_similarity(ids, permutations=99)
    assert found.p_value == 0.01
    assert found.neighbours > found.at_random + 0.02
    assert found.documents == 900
    # One document of each author, or documents in random order, are not.
    assert neighbour_similarity(ids, groups=author, permutations=99).documents == 30
    labels = np.random.default_rng(1).permutation(len(ids))  # groups of one, in any order of labels
    labelled = neighbour_similarity(ids, groups=labels, permutations=99)
    assert labelled.neighbours == found.neighbours
    shuffled = [
        neighbour_similarity(np.random.default_rng(k).permutation(ids), permutations=99).p_value
        for k in range(12)
    ]
    assert np.sum(np.array(shuffled) <= 0.05) <= 3
    with pytest.raises(InputError, match="at least 3 documents"):
        neighbour_similarity(ids[:2])


def test_vectors_of_documents_weight_words_by_their_frequency():
    ids = np.array([[1, 2, 2], [1, 3, 0], [4, 0, 0]])
    vectors = grouping._document_vectors(ids, ids > 0, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    signs, cells = rng.choice([-1.0, 1.0], 4), rng.integers(0, 64, 4)
    expected = np.zeros((3, 64))
    for row, (document, count) in enumerate(zip(ids.tolist(), (3, 2, 1), strict=True)):
        for word in filter(None, document):  # words 1 and 2 occur twice, the others once
            weight = {1: 2**-0.5, 2: 2**-0.5}.get(word, 1.0)
            expected[row, cells[word - 1]] += signs[word - 1] * weight / count
    expected -= expected.mean(axis=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_similarity_of_random_orders_is_that_of_all_pairs():
    """Unit vectors v of mean 0: the mean cosine of pairs is (‖Σv‖² - n)/(n(n - 1))."""
    ids = clustered(0)[0][:300]
    vectors = grouping._document_vectors(ids, np.ones(ids.shape, bool), np.random.default_rng(0))
    pairs = (np.sum(vectors.sum(axis=0) ** 2) - 300) / (300 * 299)
    found = neighbour_similarity(ids, permutations=99)
    assert found.at_random == pytest.approx(pairs, abs=1e-3)
    assert found.neighbours == pytest.approx(np.sum(vectors[1:] * vectors[:-1]) / 299, abs=1e-6)


def test_known_groups_are_read_with_the_documents(tmp_path):
    rows = [("to be or", "w"), ("not", None), ("that is", "w"), (" ", 3), ("it", None), ("so", 3)]
    path = write_lines(tmp_path / "a.jsonl", *({"text": text, "by": by} for text, by in rows))
    corpus = load_tokens(path, group_field="by")
    assert corpus.group_labels.tolist() == corpus.groups().tolist() == [0, 1, 0, 3, 4]
    assert corpus.chosen(np.array([2, 3])).group_labels.tolist() == [0, 3]
    assert load_tokens(path).group_labels is None
    refused(path, "no column 'author'", load_tokens, group_field="author")
    for source in ("stdlib", "synthetic"):
        refused(source, "`group_field`", load_tokens, group_field="by")
    write_lines(path, {"text": "a", "by": [1]}, {"text": "b", "by": [2]})
    refused(path, "`group_field`", load_tokens, group_field="by")


def test_ids_of_documents_have_groups_too(tmp_path):
    ids, authors = [[1, 2], [], [3], [4, 5, 6]], ["a", "c", "b", "a"]
    parquet.write_table(pyarrow.table({"ids": ids, "by": authors}), tmp_path / "a.parquet")
    corpus = load_tokens(tmp_path / "a.parquet", text_field="ids", group_field="by")
    assert corpus.group_labels.tolist() == [0, 1, 0]
    assert tokens_from_ids([[1, 2], [3, 4]]).group_labels is None
