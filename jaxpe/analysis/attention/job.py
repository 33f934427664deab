"""Decomposition of attention logits into position and content, and ablation of heads."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxpe
from jaxpe import spectral
from jaxpe._core.errors import InputError
from jaxpe._core.progress import SILENT, Clock, Progress
from jaxpe.analysis.attention import logit_sums
from jaxpe.analysis.attention.documents import Sample, check_sample, draw_sample
from jaxpe.analysis.attention.head_ablation import head_drops
from jaxpe.analysis.attention.result import (
    AttentionAnalysis,
    AttentionFacts,
    MeanLogits,
    Pairs,
    PartShares,
    SingleDocuments,
    Variance,
)
from jaxpe.analysis.attention.variance import MeanAndSpread, ratio, variance_decomposition
from jaxpe.analysis.subject import LENGTH, Subject, SubjectOptions, read_subject
from jaxpe.data.corpora.corpus import as_sources
from jaxpe.nn import functionalize, trunk
from jaxpe.nn.transformer import has_one_encoding
from jaxpe.spectral import PartMeans, PartSums

_SINGLE = 16  # documents whose logits are analysed one by one
_FREQUENCIES = 65

_means = jax.jit(PartSums.means)
_toeplitz_shares = jax.jit(jax.vmap(lambda sums: spectral.toeplitz_shares(sums.means())))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionOptions(SubjectOptions):
    """Decompose a model's attention logits into position and content, and ablate its heads.

    Attributes:
        model: folder of a `jaxpe train` run, a Hugging Face directory of a BERT or MPNet, or a
            decoder: its directory, a .gguf, or a folder with one. Each but a run may be a name on
            the Hugging Face hub. When absent, a small transformer with its initial parameters. A
            run has its own documents, length and task.
        task: classify, mlm (masked words) or causal (next word); when absent, the task that the
            model was trained for.
        examples: largest number of documents.
        ablate: measure the score without each head; takes most of the time.
    """

    examples: int = 64
    ablate: bool = True


def analyse(
    options: AttentionOptions, *, subject: Subject | None = None, progress: Progress = SILENT
) -> AttentionAnalysis:
    """Mean logits of a model, their spectra and parts, and the value of each head.

    A run is scored at its task, on held-out documents; a decoder at the next token; an encoder
    without a trained head by the change of its embeddings.

    Args:
        options: options of the analysis; accuracy is measured on eight times as many documents.
        subject: the model and documents; read by the options when None.
        progress: receiver of progress in reading, in the logits and in the heads.

    Raises:
        InputError: options out of range, an unreadable model or source, a model without heads,
            encodings that differ by layer or depend on hidden states, documents that fill fewer
            than 4 positions, or too little memory.

    Most of the time is compilation and ablation:

    >>> options = AttentionOptions(source="stdlib", examples=16, ablate=False)
    >>> analyse(options).variance.offset.shape  # doctest: +SKIP
    (2, 4)
    """
    sampling, clock = {"examples": options.examples, "seed": options.seed}, Clock()
    if subject is None:
        check_sample(length=LENGTH if options.length is None else options.length, **sampling)
        subject = read_subject(options, new_head=False, held_out=True, progress=progress)
        clock.lap("reading")
    _check_one_encoding(subject)
    config, length = trunk(subject.module).config, subject.documents.corpus.ids.shape[1]
    check_sample(length=length, layers=config.num_layers, heads=config.num_heads, **sampling)
    sample = draw_sample(subject, **sampling)
    clock.lap("drawing")
    sums = logit_sums.sum_logits(sample, progress=progress)
    total, causal = logit_sums.merged(*sums.halves), sample.transformer.causal
    means = _means(total.parts)
    result = AttentionAnalysis(
        source=subject.source,
        model=subject.model,
        facts=_facts(sample, trained=subject.trained),
        causal=causal,
        means=_mean_logits(means.parts.total, causal=causal),
        single=_single_documents(sample),
        variance=_variance(sums, causal=causal),
        parts=_part_shares(total.parts),
        embedded=_part_shares(total.embedded),
        pairs=_pairs(total, means, sums.rotation),
        ablations=[],
        inputs=tuple(as_sources(options.source)),
        seconds=clock.laps,
    )
    clock.lap("logits")
    if not options.ablate:
        return result
    result = result._replace(ablations=head_drops(sample, progress=progress))
    clock.lap("ablation")
    return result


@functools.partial(jax.jit, static_argnames="causal")
def _spectra(mean: Array, *, causal: bool) -> dict[str, Array]:
    """Toeplitz residual, symbol, spectra and ranks of each matrix `[..., n, n]`."""
    n = mean.shape[-1]
    attended = _attended_pairs(mean, causal=causal)
    diagonals = spectral.diagonal_means(mean, mask=attended)
    singular = spectral.spectrum(mean, kind="singular", mask=attended)
    symmetric = spectral.spectrum(mean, mask=attended)
    frequencies = np.linspace(0, np.pi, _FREQUENCIES)
    kind = "singular" if causal else "eigenvalues"
    level_free = _centred_diagonals(diagonals, causal=causal)
    return {
        "toeplitz": _unexplained_share(mean, diagonals, attended),
        "circulant": jnp.vectorize(spectral.circulant_residual, signature="(n,n)->()")(mean),
        "diagonals": diagonals,
        "symbol": spectral.symbol(diagonals, frequencies),
        "szego": spectral.szego(level_free, n=n, kind=kind).distance,
        "singular": singular.values,
        "eigenvalues": symmetric.values,
        "effective_rank": singular.effective_rank,
        "condition": singular.condition_number,
        "range": symmetric.range,
    }


def _check_one_encoding(subject: Subject) -> None:
    if not has_one_encoding(trunk(subject.module)):
        raise InputError(
            f"{subject.model} has encodings that differ by layer or look at the hidden states: "
            "mean logits need one encoding of positions in all layers; `jaxpe inspect` takes such "
            "models"
        )


def _centred_diagonals(diagonals: Array, *, causal: bool) -> Array:
    """Diagonals `[..., 2n − 1]` of a matrix whose mean over the pairs seen is 0.

    A level would be an eigenvalue larger than all others, which makes every relative distance
    small.
    """
    n = (diagonals.shape[-1] + 1) // 2
    offsets = np.arange(1 - n, n)
    pairs = np.where(causal & (offsets > 0), 0, n - np.abs(offsets)).astype(diagonals.dtype)
    weights = np.broadcast_to(pairs / pairs.sum(), diagonals.shape)
    level = jnp.sum(diagonals * weights, axis=-1, keepdims=True)
    return jnp.where(weights > 0, diagonals - level, 0)


def _mean_logits(mean: Array, *, causal: bool) -> MeanLogits:
    spectra: dict[str, np.ndarray] = jax.tree.map(_wide, _spectra(mean, causal=causal))
    if causal:  # a circle has no earlier keys
        spectra["circulant"] = np.full_like(spectra["circulant"], np.nan)
    logits = np.where(_attended_pairs(mean, causal=causal), _wide(mean), np.nan)
    return MeanLogits(logits=logits, **spectra)


def _single_documents(sample: Sample) -> SingleDocuments:
    """Spectra of the logits of single documents, averaged over some of them."""
    causal, text = sample.transformer.causal, sample.text

    def batch_logits(model: Any, ids: Array) -> Array:
        traced: Any = trunk(model)(ids, trace=True)
        return jnp.swapaxes(traced.logits[..., text, text], 0, 1)

    apply, params = functionalize(sample.module, method=batch_logits)
    run, size = jax.jit(apply), min(2, logit_sums.batch_size(sample.rows.shape, sample.maps))
    batches = logit_sums.row_batches(sample.rows[: _SINGLE // size * size], size)
    documents = (document for ids in batches for document in run(params, ids))
    spectra = [_spectra(document, causal=causal) for document in documents]
    return SingleDocuments(
        *(np.mean([_wide(x[name]) for x in spectra], axis=0) for name in SingleDocuments._fields)
    )


def _mean_and_spread(sums: logit_sums.LogitSums) -> MeanAndSpread:
    spread = logit_sums.Spread(*map(_wide, sums.spread))
    return MeanAndSpread(_wide(_means(sums.parts).parts.total), spread)


def _variance(sums: logit_sums.HalfSums, *, causal: bool) -> Variance:
    """Decomposition of variance for the documents, and for their tokens in random order."""
    (a, b), (c, d) = (map(_mean_and_spread, pair) for pair in (sums.halves, sums.shuffled))
    return variance_decomposition((a, b), (c, d), causal=causal)


def _part_shares(sums: PartSums) -> PartShares:
    """Shares of the five parts in the logits of each layer."""
    share, mean_share, residual = (
        np.stack([_wide(part) for part in parts], -1) for parts in _toeplitz_shares(sums)
    )
    nonzero = share.sum(axis=-1) > 0
    return PartShares(
        share=np.where(nonzero[..., None], share, np.nan),
        mean_share=np.where(nonzero[..., None], mean_share, np.nan),
        residual=np.where(mean_share > 0, residual, np.nan),
        cross=np.where(nonzero, 1 - share.sum(axis=-1), np.nan),
    )


def _pairs(
    sums: logit_sums.LogitSums, means: PartMeans, rotation: logit_sums.Rotation | None
) -> Pairs | None:
    """Shares of the rotary pairs in the mean squared logits."""
    if rotation is None or sums.pairs is None:
        return None
    documents = np.asarray(means.counts).max()
    squares = _wide(means.total_squares).sum((-2, -1))[..., None] * documents
    return Pairs(rotation.angles, ratio(_wide(sums.pairs), squares))


def _unexplained_share(mean: Array, diagonals: Array, attended: np.ndarray) -> Array:
    """Share of the squares that no Toeplitz matrix explains, over attended pairs."""
    rest = mean - spectral.toeplitz_matrix(diagonals)
    missed = jnp.sum(jnp.where(attended, rest, 0) ** 2, axis=(-2, -1))
    total = jnp.sum(jnp.where(attended, mean, 0) ** 2, axis=(-2, -1))
    return missed / jnp.where(total == 0, 1.0, total)


def _attended_pairs(matrices: Array | np.ndarray, *, causal: bool) -> np.ndarray:
    """Whether query i attends to key j, in the shape of the matrices."""
    n = matrices.shape[-1]
    return np.broadcast_to(np.tri(n, dtype=bool) if causal else np.True_, matrices.shape)


def _wide(x: Any) -> np.ndarray:
    """NumPy array of float64 or complex128."""
    x = np.asarray(x)
    return x.astype(np.result_type(x.dtype, np.float64))


def _facts(sample: Sample, *, trained: bool) -> AttentionFacts:
    config = sample.transformer.config
    return AttentionFacts(
        layers=config.num_layers,
        heads=config.num_heads,
        head_width=config.head_width,
        positions=sample.text.stop - sample.text.start,
        documents=len(sample.rows),
        score=sample.score,
        trained=trained,
        seed=sample.seed,
        jaxpe=jaxpe.__version__,
    )
