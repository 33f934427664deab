"""Corpora: built in, from files, through TFDS, and synthetic ones whose geometry is known."""

from jaxpe.data import synthetic as synthetic
from jaxpe.data._export import export_corpus as export_corpus
from jaxpe.data._export import open_corpus as open_corpus
from jaxpe.data._groups import containment_groups as containment_groups
from jaxpe.data._ids import tokens_from_ids as tokens_from_ids
from jaxpe.data._labelled import LabelledTokens as LabelledTokens
from jaxpe.data._labelled import hold_out as hold_out
from jaxpe.data._labelled import load_labelled as load_labelled
from jaxpe.data._load import BUILT_IN as BUILT_IN
from jaxpe.data._load import load_corpus as load_corpus
from jaxpe.data._load import load_tokens as load_tokens
from jaxpe.data._tokenize import tokenize as tokenize
from jaxpe.data._types import Corpus as Corpus
from jaxpe.data._types import Progress as Progress
from jaxpe.data._types import TokenCorpus as TokenCorpus
from jaxpe.data.sequences import SEQUENCE_TASKS as SEQUENCE_TASKS
from jaxpe.data.sequences import SequenceTask as SequenceTask
from jaxpe.data.sequences import sequence_task as sequence_task
from jaxpe.data.synthetic import SyntheticCorpus as SyntheticCorpus
from jaxpe.data.synthetic import three_regimes as three_regimes
from jaxpe.data.synthetic import zipf_drift as zipf_drift
from jaxpe.data.synthetic import zipf_stationary as zipf_stationary
from jaxpe.data.tasks import Examples as Examples
from jaxpe.data.tasks import count_triggers as count_triggers
from jaxpe.data.tasks import relative_distance as relative_distance
