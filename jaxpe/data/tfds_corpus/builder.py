"""A TFDS builder for a corpus in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from jaxpe.data._types import Corpus, TokenCorpus


class JaxpeCorpus(tfds.core.GeneratorBasedBuilder):
    """A corpus of text (`text`) or of tokens (`ids`, `mask`), its other fields as metadata."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, corpus: Corpus | TokenCorpus, **options: Any):
        self._corpus = corpus
        super().__init__(**options)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"The corpus {self._corpus.name}, exported by jaxpe.",
            features=tfds.features.FeaturesDict(_features(self._corpus)),
            metadata=tfds.core.MetadataDict(_metadata(self._corpus)),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if isinstance(self._corpus, Corpus):
            yield from enumerate({"text": text} for text in self._corpus.documents)
        else:
            pairs = zip(self._corpus.ids, self._corpus.mask, strict=True)
            yield from enumerate({"ids": ids, "mask": mask} for ids, mask in pairs)


def _features(corpus: Corpus | TokenCorpus) -> dict[str, Any]:
    if isinstance(corpus, Corpus):
        return {"text": tfds.features.Text()}
    shape = corpus.ids.shape[1:]
    return {
        "ids": tfds.features.Tensor(shape=shape, dtype=np.int32),
        "mask": tfds.features.Tensor(shape=shape, dtype=np.bool_),
    }


def _metadata(corpus: Corpus | TokenCorpus) -> dict[str, Any]:
    if isinstance(corpus, Corpus):
        return {"kind": "text", "name": corpus.name}
    fields = corpus._asdict()
    return {"kind": "tokens"} | {k: fields[k] for k in fields if k not in ("ids", "mask")}
