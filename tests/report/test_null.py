"""Where the null of rotated documents does not hold, the page says so, and clips nothing."""

import numpy as np
import pytest

from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.data import TokenCorpus
from jaxpe.report.corpus.predicates import below_null, variance_shares
from jaxpe.report.corpus.text import keyed_sentences
from tests.conftest import score_only

N, WORDS = 12, 20


def ended_by(closing: tuple[int, ...]) -> TokenCorpus:
    """I.i.d. words in 3,000 documents that end with these tokens, with hazard 0.15."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.geometric(0.15, 3000) + len(closing) - 1, 40)
    ids = rng.integers(0, WORDS, (3000, 41)).astype(np.int32)
    for back, token in enumerate(reversed(closing), start=1):
        ids[np.arange(3000), lengths - back] = token
    mask = np.arange(N) < lengths[:, None]
    names = [f"word{k}" for k in range(WORDS + 2)]
    cut = lengths > N
    return TokenCorpus(
        "ended", "ids", ids[:, :N], mask, WORDS + 2, (), names, 40, cut=cut
    )  # fmt: skip


@pytest.mark.parametrize(("closing", "fails"), [((WORDS,), False), ((WORDS + 1, WORDS), True)])
def test_a_null_that_fails_is_named_and_nothing_is_clipped(monkeypatch, closing, fails):
    score_only(monkeypatch, "sinusoidal", "random")
    found = analyse_tokens(ended_by(closing), dim=4, splits=4)
    below, said = below_null(found), keyed_sentences(found)
    assert ("null fails" in said) == fails == bool(below)
    if fails:
        assert below["bits"].high < 0
        assert variance_shares(found)[2] == found.intervals["position_share"]
        assert not {"bits", "no bits"} & said.keys()
    else:
        assert found.where.start.bits.low < 0 < found.where.start.bits.high
        assert found.where.end.bits.low > 0.2  # all end with one token
        assert found.position.significant_rank == 0
