"""Transformers that take an encoding as an argument (Flax NNX, used functionally)."""

from jaxpe.nn.adapters import attention_fn
from jaxpe.nn.cache import evict_tokens, move_cache
from jaxpe.nn.checkpoints.decoders import load_causal_lm
from jaxpe.nn.checkpoints.encoder_decoders import load_seq2seq_lm
from jaxpe.nn.checkpoints.encoders import Bert, load_classifier, load_masked_lm
from jaxpe.nn.checkpoints.loading import load_model
from jaxpe.nn.checkpoints.saving import save_huggingface
from jaxpe.nn.config import LatentSizes, TransformerConfig
from jaxpe.nn.constructions import content_logits, nope_decoder
from jaxpe.nn.encoder_decoder import EncoderDecoder
from jaxpe.nn.functionalize import functionalize, init_model
from jaxpe.nn.generate import generate
from jaxpe.nn.heads import CausalLM, Classifier, MaskedLM, Regressor, Seq2SeqLM
from jaxpe.nn.logit_decomposition import head_encoding, position_means, split_heads
from jaxpe.nn.masks import attention_mask, packed_positions, padded_positions
from jaxpe.nn.partition_rules import partition_rules
from jaxpe.nn.positions import position_functions
from jaxpe.nn.transformer import Decoder, Encoder
from jaxpe.nn.warm_start import with_encoding

__all__ = [
    "Bert", "CausalLM", "Classifier", "Decoder", "Encoder", "EncoderDecoder", "LatentSizes",
    "MaskedLM", "Regressor", "Seq2SeqLM", "TransformerConfig", "attention_fn", "attention_mask",
    "content_logits", "evict_tokens", "functionalize", "generate", "head_encoding",
    "init_model", "load_causal_lm", "load_classifier", "load_masked_lm", "load_model",
    "load_seq2seq_lm", "move_cache", "nope_decoder", "packed_positions", "padded_positions",
    "partition_rules", "position_functions", "position_means", "save_huggingface",
    "split_heads", "with_encoding",
]  # fmt: skip
