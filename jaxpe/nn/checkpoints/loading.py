"""Any released model, found by what its directory says."""

import os
from pathlib import Path
from typing import Any

from jaxpe.nn.checkpoints import huggingface
from jaxpe.nn.checkpoints.bert import Bert, MPNet
from jaxpe.nn.checkpoints.decoders import load_causal_lm
from jaxpe.nn.checkpoints.encoders import family_of_encoder, read_encoder
from jaxpe.nn.checkpoints.gguf import gguf_file
from jaxpe.nn.checkpoints.t5 import load_seq2seq_lm
from jaxpe.nn.heads import CausalLM, Seq2SeqLM
from jaxpe.nn.transformer import Encoder

_ENCODERS = {"bert": Bert, "mpnet": MPNet}


def load_model(path: str | os.PathLike, **options: Any) -> CausalLM | Seq2SeqLM | Bert | Encoder:
    """A released model of any architecture in the table, by its config.json or .gguf.

    Decoders come with their head, from `load_causal_lm`, T5 from `load_seq2seq_lm`; encoders come
    without, BERT and MPNet as from `Bert.load`, RoBERTa, DeBERTa v2 and v3 and ModernBERT as an
    `Encoder` (`load_masked_lm` has all of them with one).

    Args:
        path: a .gguf file, a folder with one, or a Hugging Face directory.
        **options: those of the function that reads it: dtype, param_dtype, attention, dropout, scan
            and remat of each.

    Raises:
        InputError: as `load_causal_lm`.

    >>> jaxpe.nn.load_model("nowhere")
    Traceback (most recent call last):
    jaxpe.InputError: nowhere is not there: pass a .gguf file, a folder with one, or ...
    """
    path = Path(path)
    if gguf_file(path) is not None:
        return load_causal_lm(path, **options)
    config = path / "config.json"
    kind = huggingface.read_config(config).get("model_type") if config.is_file() else None
    if isinstance(kind, str) and kind in _ENCODERS:
        return _ENCODERS[kind].load(path, **options)
    if (family := family_of_encoder(path)) is not None:
        return read_encoder(family, path, head=False, **options)
    if isinstance(kind, str) and kind in huggingface.T5_DEFAULTS:
        return load_seq2seq_lm(path, **options)
    return load_causal_lm(path, **options)
