"""Sequences aligned at a site: information of letters, positions that stand out, alignment."""

import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT
from jaxpe.analysis.corpus import CorpusOptions
from jaxpe.analysis.corpus.documents import compacted, document_groups, read_documents
from jaxpe.analysis.corpus.sites import letter_information, positions_standing_out
from jaxpe.data import tokens_from_ids

LETTERS = [*"ACGT-N"]


def test_information_is_that_of_schneider_where_all_letters_occur():
    counts = np.array([[30, 10, 6, 4, 9, 1], [50, 0, 0, 0, 0, 0], [0] * 6])
    found = letter_information(counts, LETTERS)
    assert (found.letters, found.alphabet) == (["A", "C", "G", "T"], "nucleotides")
    assert found.documents.tolist() == [50, 50, 0]
    p = counts[0, :4] / 50
    schneider = 2 + np.sum(p * np.log2(p)) - 3 / (2 * np.log(2) * 50)
    np.testing.assert_allclose(found.bits[0], [schneider, 2, np.nan], rtol=1e-6)
    assert found.bits[1, 1] < 2 == found.bits[2, 1]
    q = (counts[0, :4] + 0.5) / 52  # the only position that is not taken out
    assert found.differing.tolist() == [1]
    np.testing.assert_allclose(found.background, q)
    relative = np.log2(1 / q[0]), np.sum(p * np.log2(p / q)) - 3 / (2 * np.log(2) * 50)
    np.testing.assert_allclose(found.relative[0], [*relative[::-1], np.nan], rtol=1e-5, atol=1e-7)
    assert letter_information(np.ones((2, 65)), [f"w{k}" for k in range(65)]) is None


@pytest.mark.parametrize("law", [[0.25] * 4, [0.97, 0.01, 0.01, 0.01]])
def test_intervals_of_information_cover_the_truth(law):
    counts = np.random.default_rng(0).multinomial(200, law, size=2000)
    low, high = letter_information(counts, LETTERS).bits[1:]
    truth = 2 + np.sum(np.log2(law) * law)
    assert np.mean((low <= truth + 1e-6) & (truth <= high + 1e-6)) > 0.92


def test_positions_of_a_site_differ_from_unequal_background_at_the_level_of_the_test():
    rng, law = np.random.default_rng(0), [0.3, 0.2, 0.22, 0.28]
    corpora = rng.multinomial(200, law, size=(300, 20))
    found = [letter_information(counts, LETTERS[:4]) for counts in corpora]
    assert np.mean([len(x.differing) > 0 for x in found]) < 0.09
    assert abs(np.mean([x.relative[0] for x in found])) < 5e-4 < np.mean([x.bits[0] for x in found])
    corpora[0, 8:12] = rng.multinomial(200, [0.05, 0.05, 0.85, 0.05], size=4)
    assert letter_information(corpora[0], LETTERS[:4]).differing.tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize(("row", "differs"), [([8, 4, 0, 0], False), ([9, 3, 0, 0], True)])
def test_positions_differ_by_the_g_test_with_the_correction_of_williams(row, differs):
    """G/q with q = 1 + (k + 1)/6n of a position of n = 12 letters among 56 of even composition."""
    counts = np.concatenate([[row], np.full((56, 4), 3)])
    background = (counts.sum(axis=0) + 0.5) / (counts.sum() + 2)
    G = stats.power_divergence(row, 12 * background, lambda_="log-likelihood").statistic
    critical = stats.chi2.isf(0.05 / 57, 3)
    assert critical * (1 + 3 / 72) < G
    assert (critical * (1 + 5 / 72) < G) == differs
    assert letter_information(counts, LETTERS[:4]).differing.tolist() == [0] * differs


@pytest.mark.parametrize(("tokens", "least"), [("ACGT", 40), ("ACDGHIKLMNPQRSTVWYEF", 100)])
def test_bits_need_five_sequences_a_letter_and_forty(tokens, least):
    counts = np.zeros((3, len(tokens)), int)
    counts[:, -1], counts[:2, -2] = least - 2, (1, 2)
    found = letter_information(counts, [*tokens])
    for bits in (found.bits, found.relative):
        assert np.isnan(bits).all(axis=0).tolist() == [True, False, True]


def test_ambiguous_letters_are_not_counted():
    corpus = tokens_from_ids(np.array([[0, 1, 2], [3, 1, 0]]))._replace(tokens=["A", "C", "N", "-"])
    compact, used = compacted(corpus)
    assert compact.mask.tolist() == [[True, True, False], [True] * 3]
    assert used.tolist() == [True, True, False, True]
    assert compacted(corpus._replace(tokens=["a", "c", "n", "-"]))[0].mask.all()


def test_a_site_stands_out_and_shuffled_sequences_do_not():
    rng, groups = np.random.default_rng(0), np.arange(400)
    ids = rng.integers(0, 4, (400, 12))
    ids[:, 5:7] = np.where(rng.random((400, 2)) < 0.8, [2, 3], ids[:, 5:7])
    shuffled = [rng.permuted(ids, axis=1) for _ in range(40)]
    # A step is at no position, although each side differs from the other.
    steps = [np.where(np.arange(12) < 6, 0, 2) + rng.integers(0, 2, (400, 12)) for _ in range(40)]
    for corpora in (shuffled, steps):
        assert sum(bool(positions_standing_out(tokens_from_ids(x), groups)) for x in corpora) <= 4
    # The first position is compared with the nearest two, as the last.
    for moved, expected in ((0, [5, 6]), (-5, [0, 1]), (5, [10, 11])):
        found = positions_standing_out(tokens_from_ids(np.roll(ids, moved, axis=1)), groups)
        named = [(x.position, x.tokens[0].token) for x in found]
        assert named == [*zip(expected, ("id 2", "id 3"), strict=True)]


def test_p_values_are_of_mcnemar_times_all_tests():
    """Of those that differ 30 of 40 documents have a token, and 20 of 20 at another position."""
    ids = np.zeros((60, 8), int)
    ids[:30, 2], ids[30:40, [1, 3]], ids[:20, 6] = 1, 1, 1
    found = positions_standing_out(tokens_from_ids(ids), np.arange(60))
    tests = 2 * 2 * 2  # positions, tokens and directions
    shares = ((1 / 2, 1 / 6), (1 / 3, 0))  # of the token, here and at both neighbours
    rows = zip(found, (2, 6), ((30, 40), (20, 20)), shares, strict=True)
    for one, position, (k, n), expected in rows:
        p_value = stats.binomtest(k, n, alternative="greater").pvalue
        assert one.position == position
        assert [x.p_value for x in one.tokens] == pytest.approx([tests * p_value] * 2)
        (token,) = (x for x in one.tokens if x.token == "id 1")
        assert token[1:3] == pytest.approx(expected)


def test_short_strings_may_be_equal_by_chance():
    ids = np.random.default_rng(0).integers(0, 4, (300, 60))
    ids[:150] = ids[150:]
    assert len(set(document_groups(tokens_from_ids(ids[:, :5])))) == 300
    assert len(set(document_groups(tokens_from_ids(ids)))) <= 150


@pytest.mark.parametrize(
    ("align", "length", "origin", "read"),
    [(11, None, 11, "ACCCCTTTTTTGTTTTTTTA"), (11, 8, 4, "TTTTGTTT"), ("middle", 4, 2, "TTTG")],
)
def test_positions_are_counted_from_the_site(tmp_path, align, length, origin, read):
    (tmp_path / "x.fa").write_text(2 * ">x\nACCCCTTTTTTGTTTTTTTA\n")
    options = CorpusOptions(source=str(tmp_path / "x.fa"), align=align, length=length)
    corpus, found = read_documents(options, SILENT)
    assert found == origin
    assert "".join(corpus.tokens[token] for token in corpus.ids[0]) == read


@pytest.mark.parametrize(("align", "message"), [(20, "outside"), ("middle", "4 to 5")])
def test_what_cannot_be_aligned_is_refused(tmp_path, align, message):
    (tmp_path / "x.fa").write_text(">x\nACGT\n>x\nACGTA\n")
    with pytest.raises(InputError, match=message):
        read_documents(CorpusOptions(source=str(tmp_path / "x.fa"), align=align), SILENT)
