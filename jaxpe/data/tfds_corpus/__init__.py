"""The TFDS dataset that `jaxpe.data.export_corpus` writes; importing it imports TFDS."""

from jaxpe.data.tfds_corpus.builder import JaxpeCorpus

__all__ = ["JaxpeCorpus"]
