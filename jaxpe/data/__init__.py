"""Corpora: built in, from files, through TFDS, and synthetic ones whose geometry is known."""

from jaxpe.data import (
    synthetic,
)
from jaxpe.data._export import (
    export_corpus,
    open_corpus,
)
from jaxpe.data._groups import (
    containment_groups,
)
from jaxpe.data._ids import (
    tokens_from_ids,
)
from jaxpe.data._labelled import (
    LabelledTokens,
    hold_out,
    load_labelled,
)
from jaxpe.data._load import (
    BUILT_IN,
    load_corpus,
    load_tokens,
)
from jaxpe.data._shards import (
    Shard,
    find_shards,
)
from jaxpe.data._tokenize import (
    Tokenizer,
    open_tokenizer,
    tokenize,
    vocabulary_of,
)
from jaxpe.data._types import (
    Corpus,
    Document,
    Progress,
    TokenBatch,
    TokenCorpus,
)
from jaxpe.data.sequences import (
    SEQUENCE_TASKS,
    SequenceTask,
    sequence_task,
)
from jaxpe.data.synthetic import (
    SyntheticCorpus,
    three_regimes,
    zipf_drift,
    zipf_stationary,
)
from jaxpe.data.tasks import (
    Examples,
    count_triggers,
    relative_distance,
)

__all__ = [
    "BUILT_IN",
    "SEQUENCE_TASKS",
    "Corpus",
    "Document",
    "Examples",
    "LabelledTokens",
    "Progress",
    "SequenceTask",
    "Shard",
    "SyntheticCorpus",
    "TokenBatch",
    "TokenCorpus",
    "Tokenizer",
    "containment_groups",
    "count_triggers",
    "export_corpus",
    "find_shards",
    "hold_out",
    "load_corpus",
    "load_labelled",
    "load_tokens",
    "open_corpus",
    "open_tokenizer",
    "relative_distance",
    "sequence_task",
    "synthetic",
    "three_regimes",
    "tokenize",
    "tokens_from_ids",
    "vocabulary_of",
    "zipf_drift",
    "zipf_stationary",
]
