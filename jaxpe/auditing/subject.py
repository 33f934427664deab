"""`jaxpe audit`: imported by that command alone, since it brings Flax and Optax."""

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import jaxpe
from jaxpe import theory
from jaxpe._errors import InputError
from jaxpe.data import LabelledTokens, Progress
from jaxpe.geometry import Distances, PositionalDistributions, PositionCounts
from jaxpe.nn import PositionFunctions, functions_of_positions
from jaxpe.ntk import (
    gradient_flow,
    lanczos_eigenvalues,
    linearised_training,
    positional_fisher,
    positional_forcing,
    positional_ntk,
    positional_ntk_product,
)
from jaxpe.report import Audited, AuditReport, KernelPairs, Training
from jaxpe.theory import Audit, monotone_fit
from jaxpe.theory.gradients import mean_embeddings, position_gradients
from jaxpe.theory.monotone_fit import pairs
from jaxpe.training import ModelConfig, TrainConfig, load_run
from jaxpe.training.assemble import build_model
from jaxpe.training.config import load_config
from jaxpe.training.documents import Vocabulary, count_documents, has_labels, load_data

_SAMPLES = 16
_SWAPS = 24


class Subject(NamedTuple):
    """A model and a corpus, as plain functions and arrays.

    Attributes:
        of: the model as a function of its position vectors.
        outputs: `(P, shift, example) -> what the loss looks at`.
        loss: `(outputs, example) -> scalar`.
        readout: the last layer's kernel, `[dim, outputs]`.
        family: of losses, as Corollary 15 tells them apart.
        examples: pytree of `[examples, ...]`.
        counts: of the corpus, in folds.
        words: what the model is.
    """

    of: PositionFunctions
    outputs: Callable[[Array, Array, Any], Array]
    loss: Callable[[Array, Any], Array]
    readout: Array
    family: Literal["classification", "masked"]
    examples: dict[str, np.ndarray]
    counts: PositionCounts
    words: str


class Geometry(NamedTuple):
    """Positional distributions and their distances, over positions with text."""

    mu: PositionalDistributions
    D: Distances


def audit(
    source: str,
    *,
    model: str | None,
    examples: int,
    length: int,
    steps: int,
    seed: int,
    progress: Progress,
    **reading: Any,
) -> AuditReport:
    """Evaluate every statement on a corpus and a model; arguments as those of the command."""
    clock = _Clock()
    subject = read_subject(
        source, model=model, examples=examples, length=length, seed=seed, progress=progress,
        **reading,
    )  # fmt: skip
    mu = jaxpe.positional_distributions(subject.counts.merged(), empty="zero")
    mu = mu._replace(present=subject.counts.merged().per_position > 0)
    geometry = Geometry(mu, jaxpe.hellinger_distances(mu))
    if int(mu.present.sum()) < 3:
        raise InputError(
            f"{source}: text reaches {int(mu.present.sum())} positions, and three at least are "
            "needed: pass longer documents or a larger --length"
        )
    clock.lap("reading")
    alpha, b = kernel_and_forcing(subject, seed=seed)
    clock.lap("kernel")
    audits = _on_corpus(subject, geometry)
    audits |= _on_model(subject, geometry, seed=seed)
    audits |= {
        "Lemma 18": _compiled(theory.lemma_18, alpha, b, geometry.D),
        "Remark 20": theory.remark_20(_inner(alpha, geometry.mu.present)),
    }
    clock.lap("statements")
    training = train_both(subject, steps=steps, seed=seed)
    clock.lap("training")
    return AuditReport(
        source=source,
        model=subject.words,
        facts=_facts(subject, geometry, seed),
        audited=[Audited(s, audits[s.name]) for s in theory.STATEMENTS if s.name in audits],
        kernel=kernel_pairs(alpha, b, geometry.D, lemma_18=audits["Lemma 18"]),
        training=training,
        seconds=clock.laps,
    )


def read_subject(
    source: str,
    *,
    model: str | None,
    examples: int,
    length: int,
    seed: int,
    progress: Progress | None = None,
    **reading: Any,
) -> Subject:
    """The documents and the model, at its start or as a run left it."""
    config, built, words = _model_of(source, model, length=length, seed=seed, **reading)
    data = load_data(config, progress=progress)
    counts = count_documents(data.train)
    if built is None:
        built = build_model(config, data.vocabulary, counts=counts)
    try:
        of = functions_of_positions(built, length=config.length)
    except ValueError as error:
        raise InputError(str(error)) from error
    chosen, outputs, loss = _task(of, data.train, data.vocabulary, examples=examples, seed=seed)
    classify = data.vocabulary.task == "classify"
    readout = built.output.kernel.get_value() if classify else of.embeddings.T
    return Subject(
        of,
        outputs,
        loss,
        readout,
        "classification" if classify else "masked",
        chosen,
        counts,
        words,
    )


def _model_of(
    source: str, model: str | None, *, length: int, seed: int, **reading: Any
) -> tuple[TrainConfig, Any, str]:
    """A configuration that reads the documents, and the model where it exists already."""
    folder = None if model is None else Path(model)
    if folder is not None and (folder / "checkpoints").is_dir():
        run = load_run(folder)
        return load_config(folder), run.model, f"{folder.name}, trained for {run.step:,} steps"
    small = ModelConfig(dim=64, layers=2, heads=4, norm_position="post", dropout=0.0)
    config = TrainConfig(
        source=source, length=length, seed=seed, pretrained=model, model=small, **reading
    )
    if config.task is None and not has_labels(config):
        config = dataclasses.replace(config, task="mlm")
    words = "2 layers 64 wide, as initialised" if folder is None else f"{folder.name}, new head"
    return config, None, words


def _task(
    of: PositionFunctions,
    documents: LabelledTokens,
    vocabulary: Vocabulary,
    *,
    examples: int,
    seed: int,
) -> tuple[dict[str, np.ndarray], Callable, Callable]:
    """Examples drawn by the seed, and what a model and its loss are of one of them.

    A language model has one token to guess in each: the loss of the others is a sum of such.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(documents.labels))[:examples])
    ids, mask = documents.corpus.ids[rows], documents.corpus.mask[rows]
    chosen = {"ids": ids, "mask": mask}

    def logits(P: Array, shift: Array, example: Any) -> Array:
        return of.apply(P, shift, example["ids"], mask=example["mask"]).logits

    if vocabulary.task == "classify":
        chosen["target"] = documents.labels[rows]
        outputs = logits
    else:
        ahead = vocabulary.task == "causal"
        real = mask & ~np.isin(ids, vocabulary.special_ids)
        real[:, : int(ahead)] = False
        chosen = {name: array[real.any(axis=1)] for name, array in chosen.items()}
        real = real[real.any(axis=1)]
        place = np.array([rng.choice(np.flatnonzero(row)) for row in real], np.int32)
        every = np.arange(len(place))
        chosen["target"] = chosen["ids"][every, place]
        if not ahead:
            chosen["ids"] = chosen["ids"].copy()
            chosen["ids"][every, place] = vocabulary.mask_id
        chosen["place"] = place - ahead

        def outputs(P: Array, shift: Array, example: Any) -> Array:
            return logits(P, shift, example)[example["place"]]

    def loss(outputs: Array, example: Any) -> Array:
        return -jax.nn.log_softmax(outputs)[example["target"]]

    return chosen, outputs, loss


def kernel_and_forcing(subject: Subject, *, seed: int) -> tuple[Array, Array]:
    """α `[n, n]` and b `[n, dim]` at P = 0, where the paper has them.

    α exactly for a few classes, from sampled targets for the words of a vocabulary.
    """
    f, loss, examples = _at_no_shift(subject), subject.loss, subject.examples
    start = jnp.zeros_like(subject.of.vectors)
    b = jax.jit(lambda P: positional_forcing(f, loss, P, examples))(start)
    if subject.family == "classification":
        return jax.jit(lambda P: positional_ntk(f, loss, P, examples))(start), b
    key = jax.random.key(seed)

    def sampled(P: Array) -> Array:
        return positional_fisher(f, P, examples, key=key, samples=_SAMPLES)

    return jax.jit(sampled)(start), b


def _at_no_shift(subject: Subject) -> Callable[[Array, Any], Array]:
    return lambda P, example: subject.outputs(P, subject.of.no_shift, example)


def kernel_pairs(alpha: Array, b: Array, D: Distances, *, lemma_18: Audit) -> KernelPairs:
    """What the figures show of α and of the bound (13), over pairs of positions with text."""
    inner = _inner(alpha, D.present)
    distances = pairs(_inner(D.values, D.present)).astype(alpha.dtype)
    entries = pairs(inner)
    fit = _compiled(monotone_fit, distances, entries)
    flow = gradient_flow(inner, b[np.flatnonzero(D.present)], jnp.zeros_like(b[D.present]))
    reached = jaxpe.euclidean_distances(flow.fixed_point().positions).values
    return KernelPairs(
        distances=np.asarray(distances),
        alpha=np.asarray(entries),
        increasing=np.asarray(fit.increasing),
        decreasing=np.asarray(fit.decreasing),
        explained=(float(fit.explained_increasing), float(fit.explained_decreasing)),
        eigenvalues=np.asarray(flow.eigenvalues[::-1]),
        reached=np.asarray(pairs(reached)),
        bound=np.asarray(lemma_18.measured["constant of (13)"] * distances),
    )


def _inner(matrix: Array, present: Array) -> Array:
    """The rows and columns of positions with text."""
    kept = np.flatnonzero(present)
    return jnp.asarray(matrix)[kept[:, None], kept]


def _on_corpus(subject: Subject, geometry: Geometry) -> dict[str, Audit]:
    """The statements on distributions and their distances."""
    D, P = geometry.D, subject.of.vectors
    inner = Distances(_inner(D.values, D.present), jnp.ones(int(D.present.sum()), bool))
    n, dim = inner.values.shape[0], P.shape[1]
    few = min(16, (n - 1) // 2 * 2)
    return {
        "Conjecture 5": _compiled(
            theory.conjecture_5, D, jaxpe.euclidean_distances(P, present=D.present)
        ),
        "Proposition 6": _compiled(theory.proposition_6, inner, dim=few),
        "Remark 7": _compiled(theory.remark_7, inner.values**2, dim=few),
        "Remark 8": _compiled(
            theory.remark_8, inner, width=dim, ranks=[r for r in (1, 2, 3, 7) if r < n]
        ),
    }


def _on_model(subject: Subject, geometry: Geometry, *, seed: int) -> dict[str, Audit]:
    """The statements on gradients and attention, at P = 0 but for Theorem 4."""
    of, mu, D = subject.of, geometry.mu, geometry.D
    examples, W = subject.examples, of.projections
    start = jnp.zeros_like(of.vectors)

    def loss(P: Array, shift: Array, example: Any) -> Array:
        return subject.loss(subject.outputs(P, shift, example), example)

    def attention(P: Array, example: Any) -> tuple[Array, Array]:
        below = of.apply(
            P, of.no_shift, example["ids"], mask=example["mask"], trace=True
        ).transformer
        assert below.logits is not None  # it was traced
        assert below.weights is not None
        return below.logits[0], below.weights[0]

    occupied = jnp.asarray(examples["mask"])
    gradients = jax.jit(
        lambda P: position_gradients(loss, attention, P, examples, occupied=occupied)
    )(start)
    means = mean_embeddings(mu, of.embeddings)
    return {
        "Theorem 1": _without_positions(subject, seed=seed),
        "Theorem 4": theory.theorem_4(
            lambda P, example: loss(P, of.no_shift, example),
            of.vectors,
            examples,
            means,
            W.query,
            W.key,
            swaps=_swaps(np.asarray(D.present), seed=seed),
            swap=_reordered,
            present=D.present,
        ),
        "Lemma 11": _compiled(theory.lemma_11, gradients, mu),
        "Lemma 12": _compiled(theory.lemma_12, gradients, mu, means, W.query, W.key),
        "Lemma 14": _compiled(theory.lemma_14, gradients, D, means, W.query, W.key),
        "Corollary 15": _compiled(theory.corollary_15, gradients, mu, family=subject.family),
        "Lemma 16": _compiled(
            theory.lemma_16, gradients, mu, of.embeddings, W.query, W.key, W.value, W.output,
            gradient_bound=float(_gradient_bound(subject)),
        ),
    }  # fmt: skip


def _compiled(function: Callable[..., Any], *arrays: Any, **choices: Any) -> Any:
    """One program in place of hundreds of small ones."""
    return jax.jit(functools.partial(function, **choices))(*arrays)


def _without_positions(subject: Subject, *, seed: int) -> Audit:
    """Theorem 1 with P = 0 on tokens without padding; rotations and biases stay."""
    of = subject.of
    n = of.vectors.shape[0]
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, of.embeddings.shape[0], (4, n)).astype(np.int32)
    orders = np.stack([rng.permutation(n) for _ in range(4)]).astype(np.int32)
    start = jnp.zeros_like(of.vectors)

    def hidden(row: Array) -> Array:
        return of.apply(start, of.no_shift, row).transformer.hidden

    return theory.theorem_1(hidden, ids, orders)


def _reordered(example: Any, order: Array) -> Any:
    """Tokens in another order; what is to be guessed stays where it was."""
    return example | {name: jnp.asarray(example[name])[order] for name in ("ids", "mask")}


def _swaps(present: np.ndarray, *, seed: int) -> np.ndarray:
    kept = np.flatnonzero(present)
    i, j = np.triu_indices(len(kept), 1)
    chosen = np.random.default_rng(seed).permutation(len(i))[:_SWAPS]
    return np.stack([kept[i[chosen]], kept[j[chosen]]], axis=1).astype(np.int32)


def _gradient_bound(subject: Subject) -> Array:
    """Largest ‖∂loss/∂h‖ of the state that the last layer reads."""
    f = _at_no_shift(subject)
    start = jnp.zeros_like(subject.of.vectors)

    def norm(example: Any) -> Array:
        gradient = jax.grad(subject.loss)(f(start, example), example)
        return jnp.linalg.norm(subject.readout @ gradient)

    return jnp.max(jax.lax.map(norm, subject.examples, batch_size=8))


def train_both(subject: Subject, *, steps: int, seed: int, rows: int = 32) -> Training:
    """Gradient descent on P alone, of the model and of its linearisation, on a few examples.

    From the model's own vectors; the step is 1/λ_max of the whole kernel there.
    """
    f, loss, start = _at_no_shift(subject), subject.loss, subject.of.vectors
    examples = {name: jnp.asarray(array[:rows]) for name, array in subject.examples.items()}
    product = positional_ntk_product(f, loss, start, examples)
    key = jax.random.key(seed)
    top = jax.jit(lambda: lanczos_eigenvalues(product, start, num=1, key=key, steps=12))()
    rate = 1.0 / float(jnp.maximum(top.eigenvalues[0], 1e-12))

    def batch(P: Array, examples: Any) -> Array:
        return jax.vmap(lambda example: f(P, example))(examples)

    def mean_loss(outputs: Array) -> Array:
        return jnp.mean(jax.vmap(loss)(outputs, examples))

    gap = jax.jit(
        lambda P: linearised_training(
            batch, mean_loss, P, examples, optimizer=optax.sgd(rate), steps=steps
        )
    )(start)
    return Training(*(np.asarray(x) for x in (gap.losses, gap.linear_losses, gap.output_distance)))


def _facts(subject: Subject, geometry: Geometry, seed: int) -> dict[str, Any]:
    n, dim = subject.of.vectors.shape
    return {
        "positions": n,
        "positions with text": int(geometry.D.present.sum()),
        "width": dim,
        "examples": len(subject.examples["ids"]),
        "loss": subject.family,
        "seed": seed,
        "jaxpe": jaxpe.__version__,
    }


class _Clock:
    """Seconds by stage."""

    def __init__(self):
        self.last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now
