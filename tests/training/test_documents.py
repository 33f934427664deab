"""Documents of a run: sources in every form, their labels, and published splits."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import tokens_from_ids
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.training import TrainConfig
from jaxpe.training.config import check_config, resolved
from jaxpe.training.documents import _buckets, has_labels, load_data
from tests.data.test_sources import KINDS, NAMES, ROWS, TEXTS, datasets, lines_folder

__all__ = ["datasets"]  # a fixture


def documents(labelled):
    """Words of each document."""
    tokens = labelled.corpus.tokens
    rows = zip(labelled.corpus.ids, labelled.corpus.mask, strict=True)
    return [" ".join(tokens[token] for token in ids[mask]) for ids, mask in rows]


@KINDS
@pytest.mark.parametrize("task", ["classify", "mlm"])
def test_a_published_split_is_held_out(datasets, kind, task):
    config = TrainConfig(source=str(datasets[kind]), task=task, length=8)
    data = load_data(config)
    assert documents(data.train) == TEXTS["train"]
    known = {word for text in TEXTS["train"] for word in text.split()}
    held_out = [
        " ".join(word if word in known else "[UNK]" for word in text.split())
        for text in TEXTS["validation"]
    ]
    assert documents(data.held_out) == held_out
    assert data.train.corpus.tokens == data.held_out.corpus.tokens == data.vocabulary.tokens
    assert (data.vocabulary.mask_id is None) == (task != "mlm")
    if data.vocabulary.task == "classify":
        names = tuple(sorted(NAMES)) if kind is lines_folder else tuple(NAMES)
        assert data.vocabulary.classes == names
        expected = [NAMES[label] for _, label in ROWS["validation"]]
        assert [names[label] for label in data.held_out.labels] == expected
    assert resolved(config, "causal").held_out is None
    assert resolved(TrainConfig(source=f"{datasets[kind]}/test"), "causal").held_out == 0.1


def test_a_share_in_place_of_the_published_split(datasets):
    config = TrainConfig(source=str(datasets[lines_folder]), held_out=0.3, length=8)
    data = load_data(config)
    assert sorted(documents(data.train) + documents(data.held_out)) == sorted(TEXTS["train"])


def test_ids_with_a_published_split_have_one_vocabulary(tmp_path):
    for split, largest in (("train", 5), ("test", 9)):
        rows = np.arange(12).reshape(3, 4) % (largest + 1)
        rows[0, 0] = largest
        table = pa.table({"input_ids": rows.tolist()})
        pa.parquet.write_table(table, tmp_path / f"{split}.parquet")
    data = load_data(TrainConfig(source=str(tmp_path), length=4))
    assert len(data.vocabulary.tokens) == data.train.corpus.vocab_size == 10
    assert (len(data.train.labels), len(data.held_out.labels)) == (3, 3)


def test_the_shorter_of_two_lengths_is_the_one_that_saves_most():
    mask = np.arange(16) < np.array([4, 4, 9, 16])[:, None]
    corpus = tokens_from_ids(np.zeros((4, 16), int))._replace(mask=mask)
    assert _buckets(LabelledTokens(corpus, np.zeros(4, np.int32), (), "ids")) == [4, 16]


def test_several_sources_have_labels_if_all_do(tmp_path):
    for name, row in {"a": {"label": "x"}, "b": {"label": "y"}, "c": {}}.items():
        lines = [json.dumps({"text": f"{name} {number}"} | row) + "\n" for number in range(8)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    a, b, c = (str(tmp_path / f"{name}.jsonl") for name in "abc")
    data = load_data(TrainConfig(source=(a, b), length=4))
    assert data.vocabulary.classes == ("x", "y")
    assert len(data.train.labels) + len(data.held_out.labels) == 16
    both = load_data(TrainConfig(source=f"{tmp_path}/[ab].jsonl", length=4))
    np.testing.assert_array_equal(both.train.labels, data.train.labels)
    assert not has_labels(TrainConfig(source=(a, b, c)))
    with pytest.raises(InputError, match="jsonl"):
        has_labels(TrainConfig(source=(a, c), label_field="label"))
    with pytest.raises(InputError, match="standard input"):
        check_config(TrainConfig(source=(a, "-")))
