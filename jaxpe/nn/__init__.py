"""Transformers that take an encoding as an argument (Flax NNX, used functionally)."""

from jaxpe.nn.adapters import attention_fn
from jaxpe.nn.attention import (
    Attended,
    BoundEncoding,
    Context,
    Gates,
    LatentAttention,
    MultiHeadAttention,
)
from jaxpe.nn.blocks import Block
from jaxpe.nn.cache import evict_tokens, move_cache
from jaxpe.nn.checkpoints.decoders import load_causal_lm
from jaxpe.nn.checkpoints.encoder_decoders import load_seq2seq_lm
from jaxpe.nn.checkpoints.encoders import (
    Bert,
    BertOutput,
    load_classifier,
    load_masked_lm,
)
from jaxpe.nn.checkpoints.loading import load_model
from jaxpe.nn.checkpoints.saving import save_huggingface
from jaxpe.nn.config import LatentSizes, TransformerConfig
from jaxpe.nn.constructions import content_logits, nope_decoder
from jaxpe.nn.cross import Memory
from jaxpe.nn.encoder_decoder import EncoderDecoder, EncoderDecoderOutput
from jaxpe.nn.feed_forward import FeedForward
from jaxpe.nn.functionalize import functionalize, init_model, parameter_count
from jaxpe.nn.generate import generate
from jaxpe.nn.heads import (
    CausalLM,
    Classifier,
    HeadOutput,
    MaskedLM,
    Regressor,
    Seq2SeqLM,
    Seq2SeqOutput,
    pooled,
    trunk,
)
from jaxpe.nn.logit_decomposition import (
    HeadParts,
    HiddenSums,
    head_encoding,
    position_means,
    split_heads,
    sum_hidden,
)
from jaxpe.nn.masks import attention_mask, packed_positions, padded_positions, segment_starts
from jaxpe.nn.partition_rules import partition_rules
from jaxpe.nn.positions import PositionFunctions, position_functions, position_table
from jaxpe.nn.transformer import Cache, Decoder, Encoder, Transformer, TransformerOutput
from jaxpe.nn.warm_start import with_encoding

__all__ = [
    "Attended", "Bert", "BertOutput", "Block", "BoundEncoding", "Cache", "CausalLM", "Classifier",
    "Context", "Decoder", "Encoder", "EncoderDecoder", "EncoderDecoderOutput", "FeedForward",
    "Gates", "HeadOutput", "HeadParts", "HiddenSums", "LatentAttention", "LatentSizes", "MaskedLM",
    "Memory", "MultiHeadAttention", "PositionFunctions", "Regressor", "Seq2SeqLM", "Seq2SeqOutput",
    "Transformer", "TransformerConfig", "TransformerOutput", "attention_fn", "attention_mask",
    "content_logits", "evict_tokens", "functionalize", "generate", "head_encoding", "init_model",
    "load_causal_lm", "load_classifier", "load_masked_lm", "load_model", "load_seq2seq_lm",
    "move_cache", "nope_decoder", "packed_positions", "padded_positions", "parameter_count",
    "partition_rules", "pooled", "position_functions", "position_means", "position_table",
    "save_huggingface", "segment_starts", "split_heads", "sum_hidden", "trunk", "with_encoding",
]  # fmt: skip
