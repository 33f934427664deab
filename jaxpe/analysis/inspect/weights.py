"""Positions in the weights: learned tables and their geometry, biases, rotary configurations."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import geometry
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Progress
from jaxpe.analysis.corpus import CorpusOptions, CorpusResult, analyse_tokens
from jaxpe.analysis.corpus.result import Interval
from jaxpe.analysis.corpus.vectors import entry_of_table
from jaxpe.analysis.inspect.result import EncodingStage, GeometryStage, LearnedTable
from jaxpe.data import TokenCorpus
from jaxpe.nn.heads import trunk
from jaxpe.nn.positions import position_table
from jaxpe.plans import RopeAnalysis, RopeOptions, explain_rope

_NAME = "model"
_WIDTH = 128  # of sinusoidal vectors
_ORDERS = 200  # random orders of the rows of a table


def describe_encoding(
    module: Any, *, path: Path | None = None, length: int, most: int | None = None
) -> EncodingStage:
    """Ways in which positions enter a model: tables, biases and rotary configuration.

    Args:
        module: a model on a transformer of `jaxpe.nn`.
        path: file or folder with its configuration; without a configuration, no rotary one is read.
        length: number n of positions for biases.
        most: rows of the table of positions; None without a table.

    >>> from jaxpe import encodings, nn
    >>> from flax import nnx
    >>> config = nn.TransformerConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2)
    >>> encoder = nn.Encoder(config, encoding=encodings.alibi(num_heads=2), rngs=nnx.Rngs(0))
    >>> describe_encoding(encoder, length=3).bias[0].tolist()
    [-0.125, -0.0625, 0.0, -0.0625, -0.125]
    """
    below = trunk(module)
    table = None
    if most is not None:
        tokens = np.asarray(below.tokens.embedding.get_value(), np.float64)
        table = describe_table(
            np.asarray(position_table(module, length=most), np.float64),
            token_norm=float(np.linalg.norm(tokens, axis=1).mean()),
        )
    return EncodingStage(table, _bias(below, length), _rope(below, path))


def describe_table(table: np.ndarray, *, token_norm: float = math.nan) -> LearnedTable:
    """Norms, effective rank and correlation of neighbours of learned position vectors.

    Args:
        table: vectors `[positions, width]`.
        token_norm: mean norm of the token embeddings, for comparison.

    >>> angles = np.arange(63) / 10
    >>> described = describe_table(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    >>> round(described.rank, 1), described.widest
    (2.0, 11)
    """
    table = np.asarray(table, np.float64)
    centred = table - table.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 0)
    gram = unit @ unit.T
    cosine = np.array([np.diagonal(gram, k).mean() for k in range(len(gram))])
    below = np.flatnonzero(cosine < 0.5)
    return LearnedTable(
        positions=len(table),
        width=table.shape[1],
        norms=np.linalg.norm(table, axis=1),
        token_norm=token_norm,
        rank=float(geometry.entropy_rank(table.astype(np.float32))),
        cosine=cosine,
        widest=int(below[0]) if len(below) else len(cosine),
    )


def table_geometry(
    table: np.ndarray, corpus: TokenCorpus, *, seed: int = 0, progress: Progress = SILENT
) -> GeometryStage:
    """Stress of position vectors against the distances of a corpus, as in `jaxpe report`.

    `jaxpe.analysis.corpus.analyse_tokens` computes everything but `shuffled`.

    Args:
        table: vectors `[positions, width]` of at least as many positions as the corpus has.
        corpus: documents with special tokens, as the model reads them.
        seed: random seed of halvings and orders.
        progress: receiver of progress.

    Raises:
        InputError: a table with fewer rows than the corpus has positions.

    >>> table_geometry(table, corpus).scaled_stress  # doctest: +SKIP
    0.61
    """
    n = corpus.ids.shape[1]
    if len(table) < n:
        raise InputError(f"the table has {len(table)} positions and the corpus {n}: pass fewer")
    table = np.asarray(table[:n], np.float32)
    entry, options = entry_of_table(table, _NAME), CorpusOptions(dim=_WIDTH, seed=seed)
    analysis = analyse_tokens(corpus, options, encodings=(entry,), progress=progress)
    score = next(score for score in analysis.encodings if score.name == _NAME)
    held_out = analysis.held_out
    return GeometryStage(
        positions=analysis.position.positions,
        documents=analysis.facts.documents,
        scaled_stress=score.scaled_stress,
        corrected=score.position_scaled_stress,
        held_out=None if held_out is None else held_out.fixed.get(_NAME),
        correlation=score.mantel_r,
        shuffled=_random_order_stress(table, analysis, seed=seed),
        significant=analysis.position.significant_rank,
    )


def _random_order_stress(table: np.ndarray, analysis: CorpusResult, *, seed: int) -> Interval:
    """Scaled stress of the table with its rows in random order, against position alone."""
    present = np.flatnonzero(analysis.position.present)
    squares = analysis.position.squared_distances[np.ix_(present, present)]
    D = jnp.sqrt(jnp.maximum(jnp.asarray(squares), 0))
    rows, rng = jnp.asarray(table[present], D.dtype), np.random.default_rng([seed, 5])
    orders = np.stack([rng.permutation(len(present)) for _ in range(_ORDERS)]).astype(np.int32)

    @jax.jit
    def stresses(rows: jax.Array, D: jax.Array) -> jax.Array:
        return jax.lax.map(lambda order: geometry.scaled_stress(rows[order], D).stress, orders)

    stress = np.asarray(stresses(rows, D), np.float64)
    low, high = np.quantile(stress, (0.025, 0.975))
    return Interval(float(stress.mean()), float(low), float(high))


def _bias(below: Any, length: int) -> np.ndarray | None:
    """Bias of the encoding by head and offset; None unless all layers share it."""
    encoding, by_layer = below.encoding, below.layers.attention.encoding
    several = len(below.pattern.encodings) > 1
    if several or by_layer.defines("bias") or not encoding.defines("bias"):
        return None
    config, positions = below.config, jnp.arange(length, dtype=jnp.int32)
    zeros = jnp.zeros((length, config.num_heads, config.head_width))
    bias = jax.jit(lambda params: encoding.bias(params, zeros, zeros, positions, positions))
    matrix = np.asarray(bias(below.encoding_params.get_value()), np.float64)
    matrix = np.broadcast_to(matrix, (config.num_heads, length, length))
    by_offset = [np.diagonal(matrix, k, 1, 2).mean(axis=-1) for k in range(1 - length, length)]
    offsets = np.stack(by_offset, axis=-1)
    if below.causal:
        offsets[:, length:] = np.nan
    return offsets


def _rope(below: Any, path: Path | None) -> RopeAnalysis | None:
    if path is None or not any(
        part.defines("query") for part in (below.encoding, *below.pattern.encodings)
    ):
        return None
    analysis = explain_rope(RopeOptions(config=str(path)))
    return None if analysis.widest is None else analysis
