"""A TFDS builder for a corpus in memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from jaxpe.data.corpora.corpus import Corpus, TokenCorpus


class JaxpeCorpus(tfds.core.GeneratorBasedBuilder):
    """Corpus of text (`text`) or of tokens (`ids`, `mask`), with a metadata file."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(
        self,
        *,
        corpus: Corpus | TokenCorpus,
        rows: Iterable[dict[str, Any]],
        metadata: dict[str, Any],
        **options: Any,
    ):
        self._corpus, self._rows, self._metadata = corpus, rows, metadata
        super().__init__(**options)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"The corpus {self._corpus.name}, exported by jaxpe.",
            features=tfds.features.FeaturesDict(_features(self._corpus)),
            metadata=tfds.core.MetadataDict(self._metadata),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return enumerate(self._rows)


def _features(corpus: Corpus | TokenCorpus) -> dict[str, Any]:
    if isinstance(corpus, Corpus):
        return {"text": tfds.features.Text()}
    shape = corpus.ids.shape[1:]
    return {
        "ids": tfds.features.Tensor(shape=shape, dtype=np.int32),
        "mask": tfds.features.Tensor(shape=shape, dtype=np.bool_),
    }
