"""What `jaxpe spectral` computes: attention logits of a model over documents, and its heads' worth.

Logits are looked at on rows that text fills from end to end, so that every pair of positions has
all documents behind it; heads are ablated on documents as they come.
"""

import functools
import operator
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import jaxpe
from jaxpe._errors import InputError
from jaxpe.data import LabelledTokens, TokenCorpus, containment_groups
from jaxpe.nn import (
    HeadParts,
    HiddenSums,
    Transformer,
    functional,
    head_encoding,
    parameter_count,
    pooled,
    position_means,
    split_heads,
    sum_hidden,
)
from jaxpe.report import HeadDrops, MeanLogits, Pairs, PartShares, SpectralReport, Variance
from jaxpe.spectral import (
    PartSums,
    ablate_heads,
    circulant_residual,
    deposit,
    diagonal_means,
    logit_parts,
    pair_logits,
    spectrum,
    sum_heads,
    sum_parts,
    symbol,
    szego,
    toeplitz_matrix,
    toeplitz_shares,
)
from jaxpe.training.documents import Vocabulary
from jaxpe.training.tasks import logits_at

Score = Literal["accuracy", "masked", "causal", "embedding"]
Say = Callable[[str], None]

_ENTRIES = 2**24  # logits of all layers and heads held at once
_SINGLE = 16  # documents whose own logits are taken apart
_FREQUENCIES = 65
_RESAMPLES = 400
_MASK_RATE = 0.15
_LEAST = 4  # positions, and documents
_LEAST_TOKENS = 16  # of a document, whose heads are ablated
_CHUNK = 16  # documents that are ablated together
_ACTIVATIONS = 2**22  # of a layer, held at once
# Floating-point operations that ablation may take, and how many a second there may be.
_BUDGET = {"cpu": (1e13, 6e10)}
_ELSEWHERE = (2e15, 2e13)


class SpectralSubject(NamedTuple):
    """A model and documents.

    Attributes:
        source: the corpus, in words.
        model: what the model is, in words.
        module: it: a transformer, or a classifier or language model on one.
        score: what a head is worth something for.
        rows: token ids `[documents, n]` without padding, for the logits.
        text: the places in a row that are looked at: all but [CLS] and [SEP].
        documents: others, padded, for the score: `ids`, `mask` and what it compares with.
        seed: of what was drawn, and of resamples.
    """

    source: str
    model: str
    module: Any
    score: Score
    rows: np.ndarray
    text: slice
    documents: dict[str, np.ndarray]
    seed: int

    @property
    def transformer(self) -> Transformer:
        """What is below the model's head."""
        return transformer_of(self.module)


def spectral_subject(
    module: Any,
    documents: LabelledTokens,
    vocabulary: Vocabulary,
    *,
    score: Score,
    examples: int,
    seed: int = 0,
    source: str = "corpus",
    words: str = "model",
) -> SpectralSubject:
    """A model with the documents to look at it by, drawn by the seed.

    The rows for the logits are from different documents that reach as far as `examples` of them, or
    half of all, do; longer ones are cut, and keep their last token where it is a special one.

    Args:
        module: of `jaxpe.nn`.
        documents: tokens `[documents, length]`, and classes where the score is accuracy.
        vocabulary: the ids of [MASK] and of what is no text.
        score: "accuracy" of a classifier; "masked" and "causal", minus the loss of a language model
            in nats a token; "embedding", the cosine between the mean of the last hidden states and
            the same with all heads.
        examples: documents, at most; accuracy is over eight times as many.
        seed: draws them.
        source: the corpus, in words.
        words: the model, in words.

    Raises:
        InputError: for a model without heads, or documents that fill fewer than 4 positions.
    """
    transformer_of(module)
    if examples < _LEAST:
        raise InputError(f"--examples is {examples}: pass at least {_LEAST}")
    corpus = documents.corpus
    rows = _full_rows(corpus, examples=examples, seed=seed)
    special = np.isin(rows, corpus.exclude).all(axis=0)
    places = np.flatnonzero(~special)
    if len(places) < _LEAST:
        raise InputError(
            f"{source}: {len(rows)} documents have only {len(places)} positions of text in common, "
            f"and {_LEAST} at least are needed: pass longer documents, or a larger --length"
        )
    text = slice(int(places[0]), int(places[-1]) + 1)
    scored = _scored(documents, vocabulary, score, examples=examples, seed=seed)
    return SpectralSubject(source, words, module, score, rows, text, scored, seed)


def spectra_of(
    subject: SpectralSubject, *, ablate: bool = True, say: Say = lambda line: None
) -> SpectralReport:
    """Mean logits, their spectra and parts, and what each head is worth.

    Args:
        subject: of `spectral_subject` or `read_spectral_subject`.
        ablate: whether heads are ablated, which takes most of the time.
        say: called with a line of text before what takes long.
    """
    started = time.perf_counter()
    causal = subject.transformer.causal
    sums, turning = _sums(subject)
    halves = [half.parts.means() for half in sums]
    both = sums[0] + sums[1]
    whole = both.parts.means()
    mean = whole.parts.total
    report = SpectralReport(
        source=subject.source,
        model=subject.model,
        facts=_facts(subject),
        causal=causal,
        means=_described(mean, causal=causal),
        single=_single(subject),
        variance=_variance(halves, whole, causal=causal),
        parts=_shares(both.parts),
        embedded=_shares(both.embedded),
        pairs=_pairs(both, whole, turning),
        ablations=[],
        seconds={"logits": time.perf_counter() - started},
    )
    if not ablate:
        return report
    started = time.perf_counter()
    drops = _ablations(subject, say)
    seconds = report.seconds | {"ablation": time.perf_counter() - started}
    return report._replace(ablations=drops, seconds=seconds)


def transformer_of(module: Any) -> Transformer:
    """What is below a model's head.

    Raises:
        InputError: for a model without attention heads.
    """
    below = module
    for name in ("encoder", "decoder"):
        below = getattr(below, name, below)
    if not isinstance(below, Transformer):
        raise InputError(
            f"{type(module).__name__} has no attention heads that could be looked at or gated: "
            "pass a transformer of jaxpe.nn, or a classifier or language model on one"
        )
    return below


# --- documents


def _full_rows(corpus: TokenCorpus, *, examples: int, seed: int) -> np.ndarray:
    """Rows without padding, an even number of them, no two from one document."""
    groups = containment_groups(corpus.ids, corpus.mask, exclude=corpus.exclude)
    rng = np.random.default_rng(seed)
    lengths = corpus.mask.sum(axis=1)
    longest_first = np.lexsort((rng.permutation(len(lengths)), -lengths))
    _, first = np.unique(groups[longest_first], return_index=True)
    own = longest_first[np.sort(first)]
    wanted = min(examples, len(own) // 2) // 2 * 2
    if wanted < _LEAST:
        raise InputError(
            f"{corpus.name}: {len(own)} documents are too few to compare positions: pass at least "
            f"{2 * _LEAST} that are not parts of each other"
        )
    n = int(lengths[own[wanted - 1]])
    chosen = np.sort(rng.choice(own[lengths[own] >= n], wanted, replace=False))
    ids = corpus.ids[chosen, :n]
    last = corpus.ids[chosen, lengths[chosen] - 1]
    ids[:, -1] = np.where(np.isin(last, corpus.exclude), last, ids[:, -1])
    return ids


def _scored(
    documents: LabelledTokens, vocabulary: Vocabulary, score: Score, *, examples: int, seed: int
) -> dict[str, np.ndarray]:
    """Documents as they come, with what their score compares with."""
    corpus = documents.corpus
    rng = np.random.default_rng([seed, 1])
    text = corpus.mask & ~np.isin(corpus.ids, corpus.exclude)
    enough = np.flatnonzero(text.sum(axis=1) > int(score == "causal"))
    # Right or wrong is little to go by.
    rows = rng.permutation(enough)[: examples * (8 if score == "accuracy" else 1)]
    chosen = {"ids": corpus.ids[rows], "mask": corpus.mask[rows]}
    if score == "accuracy":
        chosen["labels"] = documents.labels[rows]
    if score == "masked":
        chosen |= _to_guess(chosen["ids"], text[rows], vocabulary, rng)
    n = int(chosen["mask"].sum(axis=1).max())
    return {k: v[:, :n] if k in ("ids", "mask") else v for k, v in chosen.items()}


def _to_guess(
    ids: np.ndarray, text: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """[MASK] in place of some tokens of text, one at least in each row, and their places."""
    if vocabulary.mask_id is None:
        raise InputError("the vocabulary has no [MASK], which a masked language model guesses at")
    drawn = np.where(text, rng.random(text.shape), 2.0)
    counts = np.maximum(1, np.round(_MASK_RATE * text.sum(axis=1)).astype(int))
    order = np.argsort(drawn, axis=1).astype(np.int32)[:, : counts.max()]
    guessed = np.arange(counts.max())[None] < counts[:, None]
    masked = ids.copy()
    rows = np.broadcast_to(np.arange(len(ids))[:, None], order.shape)
    masked[rows[guessed], order[guessed]] = vocabulary.mask_id
    targets = np.take_along_axis(ids, order, axis=1)
    return {"ids": masked, "places": order, "guessed": guessed, "targets": targets}


# --- logits


class _Sums(NamedTuple):
    """Sums over documents, which add."""

    parts: PartSums  # [layers, ...]
    embedded: PartSums  # [1, ...]
    pairs: Array | None  # of squares, [layers, heads, pairs]

    def __add__(self, other: "_Sums") -> "_Sums":  # pyrefly: ignore
        return jax.tree.map(jnp.add, self, other)


class _Turning(NamedTuple):
    """Which entries of queries and keys turn with position, found by turning unit vectors."""

    angles: np.ndarray  # at one position, a pair
    rotary_dim: int
    layout: Literal["half_split", "interleaved"]


def _sums(subject: SpectralSubject) -> tuple[list[_Sums], _Turning | None]:
    """Sums over each half of the documents."""
    module, text = subject.module, subject.text
    turning = _turning(module)
    rows = [subject.rows[half::2] for half in (0, 1)]
    size = _batch_size(subject)
    means = _means(subject, size)
    of_batch = functools.partial(_sum_batch, text=text, turning=turning)
    apply, params = functional(module, method=of_batch)
    run = jax.jit(apply)

    def total(half: np.ndarray) -> _Sums:
        return functools.reduce(operator.add, (run(params, ids, means) for ids in _cut(half, size)))

    return [total(half) for half in rows], turning


def _means(subject: SpectralSubject, size: int) -> Array:
    """The share of position in what enters each layer, over the places of text."""
    apply, params = functional(subject.module, method=sum_hidden)
    run = jax.jit(apply)
    places = np.zeros(subject.rows.shape[1], bool)
    places[subject.text] = True

    def summed(ids: np.ndarray) -> HiddenSums:
        sums, counts = run(params, ids)
        return HiddenSums(jnp.where(places[None, :, None], sums, 0), jnp.where(places, counts, 0))

    return position_means(summed, [{"ids": ids} for ids in _cut(subject.rows, size)])


def _sum_batch(
    model: Any, ids: Array, means: Array, *, text: slice, turning: _Turning | None
) -> _Sums:
    """Sums over one batch, layer by layer."""
    below, encoding = transformer_of(model), head_encoding(model)

    def windowed(x: Array) -> Array:
        return x[..., text, text]

    def sums_of(found: HeadParts, *, with_pairs: bool) -> tuple[PartSums, Array | None]:
        where = {"q_positions": found.positions, "k_positions": found.positions}
        where |= {"scale": found.scale}

        def of_layer(layer: tuple[Any, ...]) -> tuple[PartSums, Array | None]:
            q_content, q_position, k_content, k_position, own = layer
            parts = logit_parts(encoding, own, *layer[:4], **where)
            sums = sum_parts(jax.tree.map(windowed, parts), causal=below.causal)
            if not with_pairs or turning is None:
                return sums, None
            chosen = {"rotary_dim": turning.rotary_dim, "layout": turning.layout}
            q, k = q_content + q_position, k_content + k_position
            pairs = windowed(pair_logits(encoding, own, q, k, **where, **chosen).logits)
            if below.causal:
                pairs = jnp.tril(pairs)
            return sums, jnp.sum(pairs**2, axis=(0, -2, -1))

        return lax.map(of_layer, (*found[:4], found.params))

    parts, pairs = sums_of(split_heads(model, ids, means=means), with_pairs=True)
    embedded, _ = sums_of(split_heads(model, ids), with_pairs=False)
    return _Sums(parts, embedded, pairs)


def _turning(module: Any) -> _Turning | None:
    """How queries turn; None where they do not, or heads differ, or pairs have no usual layout."""
    if not head_encoding(module).defines("query"):
        return None
    apply, params = functional(module, method=_turned)
    turned = np.asarray(jax.jit(apply)(params), np.float64)
    if (turned != turned[:, :1]).any():
        return None
    turned = turned[:, 0]
    off = np.abs(turned) * (1 - np.eye(len(turned)))
    moves, partner = np.flatnonzero(off.any(axis=1)), off.argmax(axis=1)
    dim = len(moves)
    if dim < 2 or dim % 2 or moves[-1] != dim - 1:
        return None
    half_split = partner[0] == dim // 2
    first = np.arange(dim // 2) if half_split else np.arange(0, dim, 2)
    if (partner[first] != first + (dim // 2 if half_split else 1)).any():
        return None
    angles = np.abs(np.arctan2(turned[first, partner[first]], turned[first, first]))
    return _Turning(angles, dim, "half_split" if half_split else "interleaved")


def _turned(model: Any) -> Array:
    """What the first layer's encoding makes of queries that are unit vectors, at position 1."""
    below, encoding = transformer_of(model), head_encoding(model)
    width, heads = below.config.head_width, below.config.num_heads
    if below.config.latent is not None:
        width += below.config.latent.rotary_dim
    unit = jnp.broadcast_to(jnp.eye(width)[:, None], (width, heads, width))
    own = below.layers.attention.encoding_params.get_value()
    params = (below.encoding_params.get_value(), jax.tree.map(lambda leaf: leaf[0], own))
    return encoding.query(params, unit, jnp.ones(width, jnp.int32))


def _batch_size(subject: SpectralSubject) -> int:
    """Rows at once; it divides their number."""
    config, (rows, n) = subject.transformer.config, subject.rows.shape
    most = max(1, _ENTRIES // (config.num_layers * config.num_heads * n**2))
    half = rows // 2
    return max(size for size in range(1, half + 1) if half % size == 0 and size <= max(most, 1))


def _cut(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


@functools.partial(jax.jit, static_argnames="causal")
def _spectra(mean: Array, *, causal: bool) -> dict[str, Array]:
    """Numbers of each matrix `[..., n, n]`."""
    n = mean.shape[-1]
    seen = _seen(mean, causal=causal)
    diagonals = diagonal_means(mean, mask=seen)
    singular = spectrum(mean, kind="singular", mask=seen)
    symmetric = spectrum(mean, mask=seen)
    frequencies = np.linspace(0, np.pi, _FREQUENCIES)
    kind = "singular" if causal else "eigenvalues"
    return {
        "toeplitz": _unexplained(mean, diagonals, seen),
        "circulant": jnp.vectorize(circulant_residual, signature="(n,n)->()")(mean),
        "diagonals": diagonals,
        "symbol": symbol(diagonals, frequencies),
        "szego": szego(diagonals, n=n, kind=kind).distance,
        "singular": singular.values,
        "eigenvalues": symmetric.values,
        "effective_rank": singular.effective_rank,
        "condition": singular.condition_number,
        "range": symmetric.range,
    }


def _described(mean: Array, *, causal: bool) -> MeanLogits:
    found: dict[str, np.ndarray] = jax.tree.map(_wide, _spectra(mean, causal=causal))
    if causal:  # what lies above the diagonal is none of a decoder's doing
        found["circulant"] = np.full_like(found["circulant"], np.nan)
    shown = np.where(_seen(mean, causal=causal), _wide(mean), np.nan)
    return MeanLogits(logits=shown, **found)


def _single(subject: SpectralSubject) -> dict[str, np.ndarray]:
    """The same of single documents' logits, averaged over some of them."""
    causal, text = subject.transformer.causal, subject.text
    names = ("toeplitz", "szego", "effective_rank", "range")

    def of_batch(model: Any, ids: Array) -> dict[str, Array]:
        logits = transformer_of(model)(ids, trace=True).logits
        assert logits is not None  # it was traced

        def of_layer(logits: Array) -> dict[str, Array]:
            found = _spectra(logits, causal=causal)
            return {name: jnp.mean(found[name], axis=0) for name in names}

        return lax.map(of_layer, logits[..., text, text])

    apply, params = functional(subject.module, method=of_batch)
    run, size = jax.jit(apply), min(2, _batch_size(subject))
    found = [run(params, ids) for ids in _cut(subject.rows[: _SINGLE // size * size], size)]
    return {name: np.mean([_wide(x[name]) for x in found], axis=0) for name in names}


def _variance(halves: list[Any], whole: Any, *, causal: bool) -> Variance:
    """Analysis of variance: over documents and pairs i ≠ j, what j − i and i, j explain.

    A token is like itself wherever it stands, so that i = j would tell of the tokens. The others
    explain nothing where a model has no positions and tokens are in random order.

    The mean logits of two halves of the documents have independent noise, whose product is 0 in the
    mean; so shares may come out below 0.
    """
    seen = _seen(whole.parts.total, causal=causal) & ~np.eye(whole.counts.shape[-1], dtype=bool)
    count = int(seen[0, 0].sum())

    def centred(means: Any) -> tuple[np.ndarray, np.ndarray]:
        mean = np.where(seen, _wide(means.parts.total), 0)
        mean = np.where(seen, mean - mean.sum(axis=(-2, -1), keepdims=True) / count, 0)
        by_offset = toeplitz_matrix(jax.jit(diagonal_means)(mean, mask=seen))
        return mean, np.where(seen, _wide(by_offset), 0)

    (a, a_offset), (b, b_offset) = map(centred, halves)
    level = np.where(seen, _wide(whole.parts.total), 0).sum((-2, -1)) / count
    squares = np.where(seen, _wide(whole.total_squares), 0)
    squares = squares.sum((-2, -1)) / count
    total = np.maximum(squares - level**2, 0)
    share = functools.partial(_ratio, whole=total)
    position = share((a * b).sum((-2, -1)) / count)
    offset = share((a_offset * b_offset).sum((-2, -1)) / count)
    return Variance(level=level, total=total, offset=offset, place=position - offset)


def _shares(sums: PartSums) -> PartShares:
    found = jax.jit(jax.vmap(lambda sums: toeplitz_shares(sums.means())))(sums)
    share, mean_share, residual = (np.stack([_wide(x) for x in of], -1) for of in found)
    return PartShares(share, mean_share, residual, cross=1 - share.sum(axis=-1))


def _pairs(sums: _Sums, whole: Any, turning: _Turning | None) -> Pairs | None:
    """Shares of the pairs that turn in the mean squared logits."""
    if turning is None or sums.pairs is None:
        return None
    documents = np.asarray(whole.counts).max()
    squares = _wide(whole.total_squares).sum((-2, -1))[..., None] * documents
    return Pairs(turning.angles, _ratio(_wide(sums.pairs), squares))


def _unexplained(mean: Array, diagonals: Array, seen: np.ndarray) -> Array:
    """Share of the squares that no Toeplitz matrix explains, over the pairs seen."""
    missed = jnp.sum(jnp.where(seen, mean - toeplitz_matrix(diagonals), 0) ** 2, axis=(-2, -1))
    whole = jnp.sum(jnp.where(seen, mean, 0) ** 2, axis=(-2, -1))
    return missed / jnp.where(whole == 0, 1.0, whole)


def _seen(matrices: Array | np.ndarray, *, causal: bool) -> np.ndarray:
    """Pairs of positions of which the first looks at the second, in the shape of the matrices."""
    n = matrices.shape[-1]
    return np.broadcast_to(np.tri(n, dtype=bool) if causal else np.True_, matrices.shape)


def _wide(x: Any) -> np.ndarray:
    """As NumPy's array of float64 or complex128."""
    x = np.asarray(x)
    return x.astype(np.result_type(x.dtype, np.float64))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Their quotient; 0 where there is nothing to have a share in."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


# --- ablation


def _ablations(subject: SpectralSubject, say: Say) -> list[HeadDrops]:
    """What each head is worth: zero in its place, and where time allows its mean."""
    config = subject.transformer.config
    chunks, kinds = _affordable(subject, say)
    apply, params = functional(subject.module, method=_SCORES[subject.score])
    if subject.score == "embedding":
        embed = jax.jit(functional(subject.module, method=_embedded)[0])
        chunks = [chunk | {"reference": embed(params, chunk)} for chunk in chunks]

    @functools.partial(jax.jit, static_argnames="at_once")
    def ablated(params: Any, documents: Any, fill: Array, *, at_once: int) -> Any:
        def score(gates: Array) -> Array:
            return apply(params, documents, gates=gates, gate_fill=fill)

        sizes = {"layers": config.num_layers, "heads": config.num_heads}
        return ablate_heads(score, **sizes, batch_size=at_once)

    mean = _mean_heads(subject, params, chunks)
    fills = {"zero": jnp.zeros_like(mean), "mean": mean}
    rng = np.random.default_rng([subject.seed, 2])
    widest = max(config.hidden_width, config.dim)

    def drops(kind: str) -> HeadDrops:
        found = []
        for chunk in chunks:
            at_once = max(1, _ACTIVATIONS // (chunk["ids"].size * widest))
            found.append(ablated(params, chunk, fills[kind], at_once=at_once))
        score = np.concatenate([_wide(x.score) for x in found])
        drop = np.concatenate([_wide(x.drop) for x in found], axis=-1)
        return _drops(kind, score, drop, rng)

    return [drops(kind) for kind in kinds]


def _affordable(subject: SpectralSubject, say: Say) -> tuple[list[Any], tuple[str, ...]]:
    """As many documents, in chunks, and kinds of ablation as there is time for."""
    config = subject.transformer.config
    budget, speed = _BUDGET.get(jax.default_backend(), _ELSEWHERE)
    used = parameter_count(subject.module)
    if subject.score in ("accuracy", "embedding"):
        used -= config.vocab_size * config.dim
    heads = config.num_layers * config.num_heads
    a_token = 2.0 * used * (1 + heads)
    kinds = ("zero", "mean") if budget / a_token >= 1024 else ("zero",)
    chunks = _chunks(subject.documents, tokens=int(budget / a_token / len(kinds)))
    seconds = a_token * sum(chunk["ids"].size for chunk in chunks) * len(kinds) / speed
    if seconds > 20:
        count = sum(len(chunk["ids"]) for chunk in chunks)
        say(
            f"ablating {heads} heads on {count} documents may take {_duration(seconds)}; "
            "--no-ablate leaves it out"
        )
    return chunks, kinds


def _chunks(documents: dict[str, np.ndarray], *, tokens: int) -> list[dict[str, np.ndarray]]:
    """Documents of like lengths together, as many as these tokens are enough for; four at least."""
    most = min(documents["ids"].shape[1], max(_LEAST_TOKENS, tokens // (2 * _LEAST)))
    lengths = np.minimum(documents["mask"].sum(axis=1), most)

    def cut(count: int) -> list[tuple[np.ndarray, int]]:
        """Rows, and how long they are with padding to a multiple of 8."""
        order = np.argsort(lengths[:count], kind="stable")
        parts = [order[start : start + _CHUNK] for start in range(0, count, _CHUNK)]
        return [(rows, min(most, -8 * (-int(lengths[rows].max()) // 8))) for rows in parts]

    count = len(lengths)
    while count > _LEAST and sum(len(rows) * width for rows, width in cut(count)) > tokens:
        count -= 1
    return [_rows_of(documents, *part) for part in cut(count)]


def _rows_of(
    documents: dict[str, np.ndarray], rows: np.ndarray, width: int
) -> dict[str, np.ndarray]:
    chunk = {name: array[rows] for name, array in documents.items()}
    chunk |= {name: chunk[name][:, :width] for name in ("ids", "mask")}
    if "places" in chunk:  # nothing is to be guessed beyond the cut
        chunk["guessed"] = chunk["guessed"] & (chunk["places"] < width)
        chunk["places"] = np.minimum(chunk["places"], width - 1)
    return chunk


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _mean_heads(subject: SpectralSubject, params: Any, chunks: list[Any]) -> Array:
    """The mean of what each head gives over tokens of the documents, `[layers, heads, width]`."""

    def summed(model: Any, ids: Array, mask: Array) -> Any:
        heads = transformer_of(model)(ids, mask=mask, trace=True).heads
        assert heads is not None  # it was traced
        return sum_heads(heads, mask)

    run = jax.jit(functional(subject.module, method=summed)[0])
    sums = (run(params, chunk["ids"], chunk["mask"]) for chunk in chunks)
    return functools.reduce(operator.add, sums).mean


def _accuracy(model: Any, documents: Any, **gating: Any) -> Array:
    logits = model(documents["ids"], mask=documents["mask"], **gating).logits
    right = jnp.argmax(logits, axis=-1).astype(jnp.int32) == documents["labels"]
    return right.astype(logits.dtype)


def _masked(model: Any, documents: Any, **gating: Any) -> Array:
    places, mask = documents["places"], documents["mask"]
    logits = logits_at(model, documents["ids"], places, mask=mask, **gating)
    return _mean_log_likelihood(logits, documents["targets"], documents["guessed"])


def _causal(model: Any, documents: Any, **gating: Any) -> Array:
    ids, mask = documents["ids"], documents["mask"]
    logits = model(ids, mask=mask, **gating).logits
    return _mean_log_likelihood(logits[:, :-1], ids[:, 1:], mask[:, 1:] & mask[:, :-1])


def _mean_log_likelihood(logits: Array, targets: Array, counted: Array) -> Array:
    """In nats a token, of each document; 0 where nothing counts."""
    likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    kept = jnp.where(counted, likelihood[..., 0], 0)
    return jnp.sum(kept, axis=-1) / jnp.maximum(jnp.sum(counted, axis=-1), 1).astype(kept.dtype)


def _embedding(model: Any, documents: Any, **gating: Any) -> Array:
    own = _embedded(model, documents, **gating)
    return jnp.sum(own * documents["reference"], axis=-1)


def _embedded(model: Any, documents: Any, **gating: Any) -> Array:
    """Means of the last hidden states, of length 1."""
    hidden = transformer_of(model)(documents["ids"], mask=documents["mask"], **gating).hidden
    mean = pooled(hidden, documents["mask"], pooling="mean")
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


_SCORES = {
    "accuracy": _accuracy,
    "masked": _masked,
    "causal": _causal,
    "embedding": _embedding,
}


def _drops(kind: str, score: np.ndarray, drop: np.ndarray, rng: np.random.Generator) -> HeadDrops:
    """Means over documents `[layers, heads, documents]`, and intervals from resampled ones."""
    layers, heads, count = drop.shape
    weights = rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES) / count
    resampled = np.einsum("lhd,rd->rlh", drop, weights)
    shuffled = rng.permuted(
        np.broadcast_to(
            drop.reshape(1, layers * heads, count), (_RESAMPLES // 4, layers * heads, count)
        ),
        axis=1,
    ).mean(axis=-1)
    found = deposit(drop.mean(axis=-1))
    again, chance = deposit(resampled), deposit(shuffled[:, None])
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    share = np.quantile(np.asarray(again.largest_share), (0.025, 0.975))
    return HeadDrops(
        kind=kind,
        documents=count,
        score=float(score.mean()),
        drop=drop.mean(axis=-1),
        low=low,
        high=high,
        head=(int(found.layer), int(found.head)),
        largest_share=(float(found.largest_share), float(share[0]), float(share[1])),
        share_by_chance=float(np.quantile(np.asarray(chance.largest_share), 0.95)),
        entropy=float(found.entropy),
    )


def _facts(subject: SpectralSubject) -> dict[str, Any]:
    config = subject.transformer.config
    return {
        "layers": config.num_layers,
        "heads": config.num_heads,
        "head width": config.head_width,
        "positions": subject.text.stop - subject.text.start,
        "documents": len(subject.rows),
        "score": subject.score,
        "seed": subject.seed,
        "jaxpe": jaxpe.__version__,
    }
