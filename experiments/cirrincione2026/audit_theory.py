"""Appendix A of the geometry paper, every statement, on real models and corpora.

`jaxpe.analysis.audit` on the standard library with a small transformer as initialised (masked
words), at the temperatures 1 and 0.1, and on SST-2 with MiniLM and a new head, the same fine-tuned,
and BERT-mini from scratch, before and after training (`figure_5_training.py` trained both; its
`--runs FOLDER`; skipped where there is none, or with `--stored` as in the stored result).

On SST-2 the statements are evaluated over sentences as they come. Few of these are long, so for α
and (13) four sentences of every length from 1 to 64 words are taken, which reach every position.
Of α at P = 0 and at the model's own P: the share of the variance of its entries that the best
increasing and the best decreasing function of a distance explain, beside the 95 % quantile of what
200 random orders of the positions explain (Mantel 1967). The distance is d_H as estimated, that of
position alone, and |i − j|.

And a search for counterexamples to the last step of Lemma 18, once the sign of f, which is
impossible, is dropped: positions on a line, α = exp(−decay · d), smooth random forcing, 10,000
draws for each n. It keeps the draws where all other hypotheses hold, and counts those whose fixed
point is not monotone.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxpe
from experiments import learning
from experiments.cirrincione2026.figure_5_training import ARMS, folder_of, trained
from experiments.common import DataMissingError, Run, main
from experiments.rows import read_rows
from jaxpe.analysis import audit as audits
from jaxpe.analysis import to_json
from jaxpe.analysis.audit import AuditOptions, SubjectOptions
from jaxpe.analysis.audit.kernel import kernel_pairs
from jaxpe.analysis.audit.result import KernelPairs
from jaxpe.analysis.subject import Subject
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.theory import monotone_fit
from jaxpe.theory.monotone_fit import pairs
from jaxpe.training.documents import Vocabulary, document_geometry

LENGTH = 66  # [CLS], 64 words, [SEP]: no sentence is longer
EXAMPLES, OF_A_LENGTH, STEPS, ORDERS = 128, 4, 50, 200
COLD = 0.1  # a temperature below 1, as Lemmas 11 and 12 ask for
OPTIONS = learning.take_options("stored")
SEARCHED, DRAWS = (3, 4, 6), 10_000
TITLES = {
    "stdlib": "stdlib, 2 × 64, new",
    "stdlib_cold": "stdlib, 2 × 64, new, τ = 0.1",
    "minilm_new": "SST-2, MiniLM, new head",
    "minilm": "SST-2, MiniLM, fine-tuned",
    "mini_new": "SST-2, BERT-mini, new",
    "mini": "SST-2, BERT-mini, trained",
}


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {"arms": {}}
    stored = read_rows(run.out / "audit_theory.json")["arms"] if OPTIONS.stored else {}
    for name in ("stdlib",) if run.quick else TITLES:
        subjects = subjects_named(run, name)
        if subjects is not None:
            temperature = COLD if name == "stdlib_cold" else 1.0
            found = of_subjects(*subjects, quick=run.quick, temperature=temperature)
            result["arms"][name] = found
            print(name, found["kernel"]["at_0"], found["bound"], flush=True)
        elif name in stored:
            result["arms"][name] = stored[name]
    result["search"] = {n: search(n, draws=200 if run.quick else DRAWS) for n in SEARCHED}
    print("search", result["search"], flush=True)
    return result


def search(n: int, *, draws: int) -> dict[str, Any]:
    """How many random kernels and forcings meet the hypotheses, and how many break Lemma 18."""

    def broken(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        audit = jaxpe.theory.lemma_18(*random_case(key, n))
        assumed, claimed = audit.hypotheses, audit.conclusions
        granted = assumed["A1 positive"].holds & assumed["A2"].holds & assumed["A3"].holds
        return granted, ~claimed["monotone"].holds, ~audit.instead["energy bound"].holds

    keys = jax.random.split(jax.random.key(n), draws)
    run = jax.jit(lambda keys: jax.lax.map(broken, keys, batch_size=256))
    granted, unordered, beyond = map(np.asarray, run(keys))
    return {
        "draws": draws,
        "granted": int(granted.sum()),
        "not_monotone": int((granted & unordered).sum()),
        "energy_bound_broken": int((granted & beyond).sum()),
    }


def random_case(key: jax.Array, n: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """α a decreasing function of distances on a line, and forcing that is smooth on it."""
    keys = jax.random.split(key, 3)
    offsets = jnp.arange(n, dtype=jnp.float32)
    d = 0.2 * jnp.abs(offsets[:, None] - offsets[None, :])
    decay = jax.random.uniform(keys[0], minval=0.2, maxval=5.0)
    smooth = jnp.exp(-d / jax.random.uniform(keys[1], minval=0.1, maxval=5.0))
    forcing = jnp.matmul(smooth, jax.random.normal(keys[2], (n, 2)), precision="highest")
    return jnp.exp(-decay * d), forcing, d


def subjects_named(run: Run, name: str) -> tuple[Subject, Subject | None] | None:
    """An arm's model with sentences as they come, and with those of every length.

    None where it is missing; None for the second where documents all have one length.
    """
    if name.startswith("stdlib"):
        subject = audits.read_subject(SubjectOptions(length=16 if run.quick else 64))
        return subject, None
    arm = name.removesuffix("_new")
    folder = None if ARMS[arm].pretrained is None else learning.model_folder(arm)
    if ARMS[arm].pretrained is not None and folder is None:
        return None
    try:
        tokenizer = learning.bert_vocabulary() if folder is None else learning.tokenizer_of(folder)
        train, _ = learning.labelled_sst2(tokenizer, length=LENGTH)
    except DataMissingError as error:
        print(f"{name}: skipped, {error}", flush=True)
        return None
    model = ARMS[arm].make(folder) if name.endswith("_new") else trained_model(run, arm)
    if model is None:
        print(f"{name}: skipped, figure_5_training.py has not run here", flush=True)
        return None
    vocabulary = Vocabulary(
        "classify", train.corpus.tokens, train.names, special_ids=train.corpus.exclude
    )
    usual = Subject(model, train, vocabulary, "SST-2", TITLES[name])
    return usual, usual._replace(documents=of_every_length(train))


def of_every_length(train: LabelledTokens) -> LabelledTokens:
    """A few different sentences of every length."""
    lengths = train.corpus.mask.sum(axis=1)
    _, first = np.unique(train.corpus.ids, axis=0, return_index=True)
    order = np.random.default_rng(0).permutation(first)
    chosen = [order[lengths[order] == length][:OF_A_LENGTH] for length in np.unique(lengths)]
    rows = np.concatenate(chosen)
    corpus = train.corpus._replace(ids=train.corpus.ids[rows], mask=train.corpus.mask[rows])
    return train._replace(corpus=corpus, labels=train.labels[rows])


def trained_model(run: Run, arm: str) -> Any:
    if not (folder_of(run, arm) / "checkpoints").is_dir():
        return None
    model, result = trained(run, arm)
    return nnx.merge(nnx.split(model, nnx.Param)[0], result.state.params)


def of_subjects(
    usual: Subject, spread: Subject | None, *, quick: bool, temperature: float = 1.0
) -> dict[str, Any]:
    """Every statement, the kernel's dependence on distance, and what became of (13)."""
    examples = 32 if quick else EXAMPLES
    options = AuditOptions(examples=examples, steps=5 if quick else STEPS, temperature=temperature)
    numbers = to_json(audits.audit(options, subject=usual))
    D, corpus = audits.geometry_of(usual).D, usual.documents.corpus
    count = examples if spread is None else len(spread.documents.labels)
    model = audits.position_loss(spread or usual, examples=count, temperature=temperature)
    zero, b = audits.kernel_and_forcing(model, seed=0)
    own, _ = audits.kernel_and_forcing(model, seed=0, P=model.functions.vectors)
    lemma_18 = jax.jit(jaxpe.theory.lemma_18)(zero, b, D)
    shown = kernel_pairs(zero, b, D, lemma_18=lemma_18)
    kept = np.flatnonzero(D.present)
    alphas = {"at_0": np.asarray(zero), "at_own_P": np.asarray(own)}
    alphas = {name: alpha[np.ix_(kept, kept)] for name, alpha in alphas.items()}
    position = document_geometry(corpus, seed=0)
    of_distance = partial(of_kernel, D=D, position=position, quick=quick)
    return {
        "statements": {entry["name"]: brief(entry) for entry in numbers["statements"]},
        "kernel": {"positions": len(kept)} | {k: of_distance(a) for k, a in alphas.items()},
        "without_largest_entry": without_largest(shown),
        "bound": of_bound(lemma_18, shown),
    }


def brief(entry: dict[str, Any]) -> dict[str, Any]:
    """Without what a statement's docstring says, and without arrays of more than a head each."""
    measured = {k: v for k, v in entry["measured"].items() if np.size(v) <= 16}
    return {k: entry[k] for k in ("hypotheses", "conclusions", "instead")} | {"measured": measured}


def of_kernel(alpha: np.ndarray, *, D: Any, position: Any, quick: bool) -> dict[str, Any]:
    """What monotone functions of distances explain of α over the positions with text."""
    kept = np.flatnonzero(D.present)
    told = np.flatnonzero(np.asarray(position.present)[kept])
    distances = {
        "d_H": np.asarray(D.values)[np.ix_(kept, kept)],
        # Squared: only their order counts, and negative ones are no ties.
        "position": np.asarray(position.squared_distances)[np.ix_(kept, kept)],
        "offset": np.abs(kept[:, None] - kept[None, :]).astype(np.float32),
    }
    found = {}
    for kind, d in distances.items():
        at = np.ix_(told, told) if kind == "position" else np.ix_(*[np.arange(len(kept))] * 2)
        found[kind] = explained(d[at], alpha[at], quick=quick)
    return found


def explained(d: np.ndarray, alpha: np.ndarray, *, quick: bool) -> dict[str, float]:
    """Shares explained by monotone functions, and what random orders reach."""
    d, alpha = d.astype(np.float32), (alpha / np.abs(alpha).max()).astype(np.float32)
    fit = jax.jit(monotone_fit)(pairs(d), pairs(alpha))
    chance = jax.jit(partial(jaxpe.theory.explained_by_chance, orders=20 if quick else ORDERS))(
        d, alpha, key=jax.random.key(0)
    )
    return {
        "positions": len(d),
        "increasing": float(fit.explained_increasing),
        "decreasing": float(fit.explained_decreasing),
        "increasing_by_chance": float(chance[0]),
        "decreasing_by_chance": float(chance[1]),
    }


def without_largest(shown: KernelPairs) -> dict[str, float]:
    """Shares explained by d_H at P = 0 without the entry that is largest in magnitude."""
    size = np.abs(shown.alpha)
    kept = size < size.max()
    fit = jax.jit(monotone_fit)(shown.distances[kept], shown.alpha[kept] / size[kept].max())
    ways = ("increasing", "decreasing")
    return {way: float(getattr(fit, f"explained_{way}")) for way in ways}


def of_bound(audit: Any, shown: KernelPairs) -> dict[str, Any]:
    """Both sides of (13) over pairs: how many break it, and by how much the others are below."""
    numbers = {k: float(v) for k, v in audit.measured.items()}
    reached, bound = shown.reached, shown.bound
    return {
        "broken": float(np.mean(reached > bound)),
        "above_2R": float(np.mean(bound >= 2 * numbers["R"])),
        "median_slack": float(np.median(bound / np.maximum(reached, 1e-30))),
        "violations_of_fixed_point": float(audit.conclusions["monotone"].lhs),
        "violations_of_d_H": float(audit.hypotheses["A3"].lhs),
    }


if __name__ == "__main__":
    main(experiment, "audit_theory")
