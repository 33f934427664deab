"""A pretrained model beside a corpus."""

import json

import numpy as np
import pytest

from jaxpe import nn
from jaxpe._core.errors import InputError
from jaxpe._core.results import result_files
from jaxpe.analysis.corpus import CorpusAnalysis, CorpusOptions, analyse
from jaxpe.nn import position_table
from jaxpe.report.corpus.text import named_findings
from tests.nn.stored import write_bert

WORDS = [f"word{k}" for k in range(12)]
LENGTH = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with a vocabulary."""
    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    write_bert(folder, vocab_size=len(special) + len(WORDS), length=LENGTH)
    (folder / "vocab.txt").write_text("\n".join([*special, *WORDS]))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Later positions hold later words."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "lines.txt"
    lines = [
        " ".join(WORDS[min(11, k + int(rng.integers(3)))] for k in range(9)) for _ in range(600)
    ]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def found(folder, source) -> CorpusAnalysis:
    return analyse(CorpusOptions(source=source, model=folder, dim=4, splits=2))


def test_its_table_is_scored_by_its_tokens(found, folder):
    (own,) = [score for score in found.encodings if score.family == "model"]
    assert own.name == "tiny-bert"
    assert not own.fixed
    assert not own.fitted
    assert found.length == LENGTH
    assert found.documents_per_position[0] == 0  # [CLS] is not counted
    table = np.asarray(position_table(nn.Bert.load(folder).encoder))
    expected = np.linalg.norm(table[1, None] - table[1:-1], axis=-1)
    np.testing.assert_allclose(own.distances[1, 1:-1], expected, rtol=1e-4)


def test_it_is_held_against_halves_and_never_called_the_best_fixed_encoding(found):
    assert 0 < found.held_out.fixed["tiny-bert"][0].estimate < 1
    assert all("tiny-bert" not in names for names in found.held_out.best)
    assert "tiny-bert" in named_findings(found)["model"]
    report = json.loads(result_files(found, "report")["report.json"])
    assert "tiny-bert" in report["held_out"]["fixed"]


def test_what_contradicts_it_is_refused(folder, source):
    cases = [
        ({"tokenizer": "bytes"}, "has its own tokenizer"),
        ({"length": LENGTH + 1}, "8 positions"),
    ]
    for options, words in cases:
        with pytest.raises(InputError, match=words):
            analyse(CorpusOptions(source=source, model=folder, **options))
    with pytest.raises(InputError):
        analyse(CorpusOptions(source=source, model=folder.parent))
