"""Corpora: built in, from files, through TFDS, and synthetic ones whose geometry is known."""

from jaxpe.data.corpora import synthetic
from jaxpe.data.corpora.corpus import Corpus, TokenCorpus
from jaxpe.data.corpora.groups import dependent_groups
from jaxpe.data.corpora.labelled import hold_out, load_labelled
from jaxpe.data.corpora.load import load_corpus, load_tokens
from jaxpe.data.corpora.synthetic import three_regimes, zipf_drift, zipf_stationary
from jaxpe.data.tasks.positions import relative_distance
from jaxpe.data.tasks.sequences import sequence_task
from jaxpe.data.tokens.token_ids import tokens_from_ids
from jaxpe.data.tokens.tokenizers import open_tokenizer, tokenize

__all__ = [
    "Corpus", "TokenCorpus", "dependent_groups", "hold_out", "load_corpus", "load_labelled",
    "load_tokens", "open_tokenizer", "relative_distance", "sequence_task", "synthetic",
    "three_regimes", "tokenize", "tokens_from_ids", "zipf_drift", "zipf_stationary",
]  # fmt: skip
