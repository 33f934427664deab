"""Files of corpora that tests write and read, whole and streamed."""

import json

import pytest

from jaxpe._core.errors import InputError
from jaxpe.data import load_corpus
from jaxpe.data.corpora.shards import find_shards


def write_lines(path, *records):
    """A .jsonl of these records."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read_both_ways(source, **options):
    """The corpus, whose documents are equal read whole and streamed."""
    corpus = load_corpus(source, **options)
    shards = find_shards(source if isinstance(source, list) else [source])
    streamed = [x.text for shard in shards for x in shard.documents(**options)]
    assert streamed == corpus.documents
    return corpus


def refused(source, word, read=load_corpus, **options):
    """The source is refused in one line that names a word, and shows little of the file."""
    with pytest.raises(InputError, match=word) as caught:
        read(source, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 4000
