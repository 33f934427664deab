"""Groups of dependent documents: near-copies, known groups, and neighbours that are alike."""

import itertools
import json

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import (
    containment_groups,
    dependent_groups,
    load_tokens,
    near_copy_groups,
    neighbour_similarity,
    tokens_from_ids,
)
from jaxpe.data.corpora import groups as grouping
from jaxpe.data.corpora.groups import _similar_pairs
from jaxpe.geometry import significant_rank
from tests.unchecked import unchecked


def zipf(words):
    weights = 1 / np.arange(1, words + 1)
    return weights / weights.sum()


def near_copies(seed, documents=250, *, words=300, n=24, copies=4, changed=0.1):
    """Each document several times, a share of its tokens drawn anew in each."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(rng.choice(words, (documents, n), p=zipf(words)), copies, axis=0)
    other = rng.random(ids.shape) < changed
    ids[other] = rng.choice(words, other.sum(), p=zipf(words))
    return ids.astype(np.int32), np.repeat(np.arange(documents), copies)


def share_together(groups, truth):
    return np.mean([len(np.unique(groups[truth == k])) == 1 for k in np.unique(truth)])


@pytest.mark.parametrize(("words", "n"), [(50, 24), (300, 24), (300, 12), (5000, 128), (4, 128)])
def test_near_copies_are_together_and_others_are_not(words, n):
    ids, truth = near_copies(0, words=words, n=n)
    groups = near_copy_groups(ids)
    assert share_together(groups, truth) > 0.97
    mixed = np.mean([len(np.unique(truth[groups == k])) > 1 for k in np.unique(groups)])
    assert mixed < 0.02


@pytest.mark.parametrize("words", [2, 4, 9, 50, 300])
@pytest.mark.parametrize("n", [8, 24, 128])
def test_independent_documents_are_no_near_copies(words, n):
    ids = np.random.default_rng(words).integers(0, words, (1500, n)).astype(np.int32)
    sizes = np.unique(near_copy_groups(ids), return_counts=True)[1]
    assert sizes.max() <= (2 if words >= 9 else 3)
    assert np.sum(sizes > 1) <= (1 if words >= 9 else 20)  # 0.3 are expected at most


def test_what_two_documents_share_must_suffice_for_both_sizes():
    """Sets of 4 and 8 that share 4 have a Jaccard similarity of 1/2."""
    features = np.tile(np.arange(1, 9, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15), (2, 1))
    for needed, found in (((0.4, 0.4), 1), ((0.6, 0.4), 0), ((0.4, 0.6), 0)):
        least = np.full(9, 2.0)
        least[[4, 8]] = needed
        assert _similar_pairs(features, np.array([4, 8]), least).shape[1] == found


def test_pieces_join_a_longer_document_that_contains_them():
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 3, (60, 9)), rng.random((60, 9)) < rng.random((60, 1))
    groups = containment_groups(ids, mask, exclude=(2,))
    texts = ["".join(map(str, row[kept])) for row, kept in zip(ids, mask & (ids != 2), strict=True)]
    for text, group in zip(texts, groups, strict=True):
        holders = [k for k, other in enumerate(texts) if text in other and len(other) > len(text)]
        assert group in (groups[holders] if holders else [texts.index(text)])


@pytest.mark.parametrize(("length", "joins"), [(63, True), (64, True), (65, False)])
def test_pieces_of_up_to_64_tokens_are_looked_for(length, joins):
    ids = np.stack([np.arange(70), np.arange(3, 73)])
    groups = containment_groups(ids, np.arange(70) < np.array([70, length])[:, None])
    assert (groups[0] == groups[1]) == joins


def test_shingles_are_as_long_as_chance_needs():
    """The rate of matches makes long shared runs likely for 2 words, and not for 3.

    The number of shared runs is exceeded with probability 0.0002/documents, by a gamma integral.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaincc

    words = (np.arange(50 * 40).reshape(50, 40) % 100 + 1).astype(np.uint64)  # each has 1/100
    lengths, same = np.full(50, 40), np.zeros((9, 40), bool)
    same[:3, 5:8] = True  # runs of 3 in a third of the pairs
    rates = {2: 1e-2, 3: 1e-3, 4: 1e-30}
    size, least = grouping._least_shingled(words, lengths, same, lambda k: (rates[k], 1.5))
    pairs, n, longer = 50 / 0.0002, 38.0, 1e-3 / 1e-2
    assert size == 3
    mean, clump = 3 / 9 + n**2 * 1e-3, max(1.5, 1 / (1 - longer))
    number = clump * brentq(lambda k: gammaincc(k + 1, mean / clump) - 1 + 1 / pairs, 0, 99)
    chance = 1 + max(np.log(pairs * n**2 * 1e-3) / -np.log(longer), number)
    share = 0.9**6
    expected = max(chance / (2 * n - chance), share / (2 - share) / 2)
    assert least[38] == pytest.approx(expected, rel=1e-6)


def test_similarity_of_sets_and_the_pairs_that_chance_is_estimated_from():
    """{1, 2, 3} and {2, 3, 4, 5} share 2 of 5; rows may repeat an element."""
    one, other = (np.array([x], np.uint32) for x in ([1, 1, 2, 3], [2, 3, 4, 5]))
    assert [x[0] for x in grouping._set_sizes(one, other)] == [3, 4, 5]
    assert grouping._similarity(one, other)[0] == pytest.approx(2 / 5)
    sets = grouping._hash_sets(np.array([[5, 6, 7], [7, 8, 9]], np.uint64), np.array([2, 3]))
    assert [len(np.unique(row)) for row in sets] == [2, 3]
    assert len(np.unique(sets)) == 5  # the third feature of the first row is padding
    assert (np.diff(sets.astype(np.int64), axis=1) >= 0).all()
    for documents, n, most in ((500, 8, 2000), (5000, 8, 2**12), (5000, 2**13, 2**10)):
        pairs = np.stack(grouping._random_pairs(documents, n))
        assert 0.98 * most < pairs.shape[1] <= most
        assert (pairs[0] != pairs[1]).all()


def test_least_similarity_of_copies():
    """Features 0 to 9, of which chance shares 2, 5 of 9 and all of the last; fewest is 7.

    Copies with share s of their features unchanged have Jaccard similarity s/(2 - s).
    """
    chance = np.array([2.0] * 7 + [2.0, 8.0, 20.0])
    least = grouping._least_similarity(chance, np.arange(1, 11), 0.5)
    np.testing.assert_allclose(least, [np.inf, *[2.0] * 7, 7 / 9, 8 / 10, 2.0][:11])
    # Where 7 of 99 features suffice against chance, half of the similarity of copies is needed.
    assert grouping._least_similarity(np.array([0.0]), np.array([99]), 0.5)[1] == 1 / 6


def test_aligned_words_of_independent_documents():
    """Shared words of 0.0002 false copies a document, by the binomial tail as a beta integral."""
    from scipy.special import betainc

    same, both = np.zeros((4, 40), bool), np.ones((4, 40), bool)
    same[:, :20:2], both[:2, 1::2] = [[True], [False], [True], [True]], False
    least = grouping._least_aligned(same, both, 50)
    for n, agree in ((20, 3 / 6), (40, 3 / 12)):
        # 3 of 4 pairs agree at even places below 20; at odd ones 2 of 4 pairs have words.
        shared = 2 * n * least[n] / (1 + least[n])
        tail = betainc(n - shared + 1, shared, 1 - agree)
        assert 1 - tail == pytest.approx(0.0002 / 50, rel=1e-6)
    # Without agreement copies with 0.9² of their words unchanged decide.
    few = grouping._least_aligned(np.zeros((4, 400), bool), both.repeat(10, axis=1), 50)
    assert few[400] == pytest.approx(0.81 / 1.19 / 2)


def test_matches_of_shingles_are_those_of_sets():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, np.where(np.arange(40) % 2, 2, 9)[:, None], (40, 9))
    mask = np.arange(9) < rng.integers(1, 10, 40)[:, None]
    words, lengths = grouping._word_rows(ids, mask, ())
    words[:2], lengths[:2] = np.arange(9, 18), 9  # the one pair that shares the most
    one, other = np.append(rng.integers(2, 40, (2, 149)), [[0], [1]], axis=1)
    rate, dispersion = grouping._shingle_matches(
        *grouping._prefix_hashes(words), lengths, one, other, 2
    )
    runs = [
        {tuple(x[k : k + 2]) for k in range(n - 1)} for x, n in zip(words, lengths, strict=True)
    ]
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if min(lengths[a], lengths[b]) >= 2]
    number = np.array([len(runs[a] & runs[b]) for a, b in pairs])
    usual = number <= np.quantile(number, 0.99)
    windows = np.array([(lengths[a] - 1) * (lengths[b] - 1) for a, b in pairs])
    assert 0 < np.sum(~usual) < 4
    assert rate == pytest.approx(number[usual].sum() / windows[usual].sum())
    assert dispersion == pytest.approx(max(number[usual].var() / number[usual].mean(), 1))
    assert dispersion > 1


def test_text_that_all_documents_begin_with_makes_no_copies():
    rng = np.random.default_rng(0)
    ids = rng.integers(20, 400, (600, 32)).astype(np.int32)
    ids[:, :16] = np.arange(16)
    assert len(np.unique(near_copy_groups(ids))) == 600
    # Words that tell positions: each place has one word with probability 0.6.
    ids = np.where(rng.random((600, 24)) < 0.6, np.arange(24), rng.integers(0, 24, (600, 24)))
    assert np.unique(near_copy_groups(ids.astype(np.int32)), return_counts=True)[1].max() <= 3


def test_a_copy_with_words_put_in_is_a_near_copy():
    rng = np.random.default_rng(1)
    base = rng.integers(0, 2000, (200, 60)).astype(np.int32)
    shifted = np.insert(base, [3, 20], rng.integers(0, 2000, (200, 2)), axis=1)[:, :60]
    groups = near_copy_groups(np.concatenate([base, shifted]))
    np.testing.assert_array_equal(groups[200:], groups[:200])


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
    apart = np.array([0, 4, 5])
    np.testing.assert_array_equal(
        dependent_groups(ids[apart], mask[apart]), containment_groups(ids[apart], mask[apart])
    )
    with unchecked(), pytest.raises(InputError, match=r"`groups`.*one label for each of 6"):
        dependent_groups(ids, mask, groups=known[:3])


def test_near_copies_leave_no_dimension_of_position():
    # Without groups every one of these corpora has a significant dimension, where 0 is right.
    ranks = []
    for seed in range(4):
        ids, _ = near_copies(seed, 150, words=60, n=12)
        options = {"vocab_size": 60, "nulls": 19, "splits": 8}
        key = jax.random.key(seed)
        ranks.append(significant_rank(ids, key=key, groups=dependent_groups(ids), **options).rank)
    # Level 1/20 each: two of four have probability 0.014.
    assert np.sum(np.array(ranks) > 0) <= 1
    assert significant_rank(ids, key=key, **options).rank > 0


@pytest.mark.parametrize("documents", [1, 2, 3])
def test_few_or_empty_documents(documents):
    for ids in (np.zeros((documents, 0), np.int32), np.zeros((documents, 4), np.int32)):
        assert len(dependent_groups(ids)) == documents
    ids = np.arange(8 * documents, dtype=np.int32).reshape(documents, 8)
    np.testing.assert_array_equal(near_copy_groups(ids), np.arange(documents))
    np.testing.assert_array_equal(near_copy_groups(ids, ids < 0), np.arange(documents))


def test_two_copies_are_found_among_documents_too_short_to_judge():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 300, (302, 60))
    ids[301] = np.where(rng.random(60) < 0.1, ids[301], ids[300])
    mask = np.arange(60) < np.where(np.arange(302) < 300, 3, 60)[:, None]
    groups = near_copy_groups(ids, mask)
    assert groups[300] == groups[301]
    assert len(set(groups)) == 301


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
    words = np.array([[1, 2, 2], [1, 3, 0], [4, 0, 0]], np.uint64)
    vectors = grouping._document_vectors(words, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    signs, cells = rng.choice([-1.0, 1.0], 5), rng.integers(0, 64, 5)
    expected = np.zeros((3, 64))
    for row, (document, count) in enumerate(zip(words.tolist(), (3, 2, 1), strict=True)):
        for word in filter(None, document):  # words 1 and 2 occur twice, the others once
            weight = {1: 2**-0.5, 2: 2**-0.5}.get(word, 1.0)
            expected[row, cells[word]] += signs[word] * weight / count
    expected -= expected.mean(axis=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_similarity_of_random_orders_is_that_of_all_pairs():
    """Unit vectors v of mean 0: the mean cosine of pairs is (‖Σv‖² - n)/(n(n - 1))."""
    ids = clustered(0)[0][:300]
    vectors = grouping._document_vectors(
        grouping._word_rows(ids, None, ())[0], np.random.default_rng(0)
    )
    pairs = (np.sum(vectors.sum(axis=0) ** 2) - 300) / (300 * 299)
    found = neighbour_similarity(ids, permutations=99)
    assert found.at_random == pytest.approx(pairs, abs=1e-3)
    assert found.neighbours == pytest.approx(np.sum(vectors[1:] * vectors[:-1]) / 299, abs=1e-6)


def test_orders_with_neighbours_as_similar_count_against_a_similarity():
    """Three documents are as similar in reverse, so of 6 orders 2 are at least as similar."""
    ids = clustered(0)[0][[0, 1, 500]]
    for order in itertools.permutations(range(3)):
        assert neighbour_similarity(ids[list(order)], permutations=99).p_value > 0.2


def test_known_groups_are_read_with_the_documents(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [("to be or", "w"), ("not", None), ("that is", "w"), (" ", 3), ("it", 3)]
    path.write_text("\n".join(json.dumps({"text": text, "by": by}) for text, by in rows))
    corpus = load_tokens(path, group_field="by")
    assert corpus.group_labels.tolist() == [0, 1, 0, 3]
    assert corpus.groups().tolist() == [0, 1, 0, 3]
    assert corpus.chosen(np.array([2, 3])).group_labels.tolist() == [0, 3]
    assert load_tokens(path).group_labels is None
    for source, field, message in (
        (path, "author", "no column 'author'.*as `group_field`"),
        (tmp_path / "a.txt", "by", "leave `group_field` out"),
        ("stdlib", "by", "leave `group_field` out"),
        ("synthetic", "by", "leave `group_field` out"),
    ):
        (tmp_path / "a.txt").write_text("to be\nor not\n")
        with pytest.raises(InputError, match=message):
            load_tokens(source, group_field=field)
    path.write_text('{"text": "a", "by": [1]}\n{"text": "b", "by": [2]}\n')
    with pytest.raises(InputError, match="strings or numbers as `group_field`"):
        load_tokens(path, group_field="by")


def test_ids_of_documents_have_groups_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"ids": [[1, 2], [3], [4, 5, 6]], "by": ["a", "b", "a"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    corpus = load_tokens(tmp_path / "a.parquet", text_field="ids", group_field="by")
    assert corpus.group_labels.tolist() == [0, 1, 0]
    assert tokens_from_ids([[1, 2], [3, 4]]).group_labels is None
