"""Corpora: built in, from files, through TFDS, and synthetic ones whose geometry is known."""

from jaxpe._core.options import Choice
from jaxpe.data.corpora import synthetic
from jaxpe.data.corpora.corpus import Corpus, Document, TokenCorpus
from jaxpe.data.corpora.groups import (
    NeighbourSimilarity,
    dependent_groups,
    neighbour_similarity,
)
from jaxpe.data.corpora.labelled import LabelledTokens, hold_out, load_labelled
from jaxpe.data.corpora.load import load_corpus, load_tokens
from jaxpe.data.corpora.published import check_data_dir
from jaxpe.data.corpora.shards import Shard, find_shards
from jaxpe.data.corpora.sources import BUILT_IN
from jaxpe.data.corpora.synthetic import SyntheticCorpus, three_regimes, zipf_drift, zipf_stationary
from jaxpe.data.tasks.positions import Examples, count_triggers, relative_distance
from jaxpe.data.tasks.sequences import SEQUENCE_TASKS, SequenceTask, sequence_pairs, sequence_task
from jaxpe.data.tokens.token_ids import tokens_from_ids
from jaxpe.data.tokens.tokenizers import Tokenizer, open_tokenizer, tokenize, tokenizer_of_ids

__all__ = [
    "BUILT_IN", "SEQUENCE_TASKS", "Choice", "Corpus", "Document", "Examples", "LabelledTokens",
    "NeighbourSimilarity", "SequenceTask", "Shard", "SyntheticCorpus",
    "TokenCorpus", "Tokenizer", "check_data_dir", "count_triggers", "dependent_groups",
    "find_shards", "hold_out", "load_corpus", "load_labelled", "load_tokens",
    "neighbour_similarity",
    "open_tokenizer", "relative_distance", "sequence_pairs", "sequence_task", "synthetic",
    "three_regimes", "tokenize", "tokenizer_of_ids", "tokens_from_ids", "zipf_drift",
    "zipf_stationary",
]  # fmt: skip
