"""Appendix A of the geometry paper, every statement, on real models and corpora.

Theirs: at P = 0 the kernel α_ij of Eq. (6) is a monotone function f of d_H (Definition 10), the
forcing is compatible with it (Lemmas 12, 14, 16), so the fixed point α⁻¹b is monotone and within
the bound (13). Ours: `jaxpe.analysis.audit` on the standard library with a small transformer as
initialised (masked words), at the temperatures 1 and 0.1, and on SST-2 with MiniLM and a new head,
the same fine-tuned, and BERT-mini from scratch, before and after training (`figure_5_training.py`
trained both; its `--runs FOLDER`; skipped where there is none).

On SST-2 the statements are evaluated over sentences as they come. Few of these are long, so for α
and (13) four sentences of every length from 1 to 64 words are taken, which reach every position.
Of α over the positions with text: its spectrum, and the share of the variance of its entries that
the best increasing and the best decreasing function of a distance explain. The distance is d_H as
estimated, that of position alone, and |i − j|. The entries are α_ij, at P = 0 and at the model's
own P; α_ij/√(α_ii α_jj); and α_ij over the share of documents that reach both positions, which is
what the entry is of a document. Each share stands beside the 95 % quantile of what 200 random
orders of the positions explain (Mantel 1967).

And a search for counterexamples to the last step of Lemma 18, once the sign of f, which is
impossible, is dropped: positions on a line, α = exp(−decay · d), smooth random forcing, 10,000
draws for each n. It keeps the draws where all other hypotheses hold, and counts those whose fixed
point is not monotone. With `--stored` an arm whose trained model is not here keeps its numbers of
the stored result, and the figure, in which no distances of position are, stays.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxpe
from experiments.cirrincione2026.figure_5_training import (
    ARMS,
    folder_of,
    trained,
)
from experiments.common import (
    BLUE,
    GREY,
    ORANGE,
    VERMILION,
    DataMissingError,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import (
    bert_vocabulary,
    labelled_sst2,
    model_folder,
    take_options,
    tokenizer_of,
)
from experiments.rows import read_rows
from jaxpe.analysis import to_json
from jaxpe.analysis.audit import (
    AuditOptions,
    Geometry,
    KernelPairs,
    PositionLoss,
    Subject,
    SubjectOptions,
    audit,
    geometry_of,
    kernel_and_forcing,
    kernel_pairs,
    position_loss,
    read_subject,
)
from jaxpe.data import LabelledTokens
from jaxpe.geometry import PositionGeometry
from jaxpe.theory import Audit, monotone_fit
from jaxpe.theory.monotone_fit import pairs
from jaxpe.training.documents import Vocabulary, document_geometry

LENGTH = 66  # [CLS], 64 words, [SEP]: no sentence is longer
EXAMPLES, OF_A_LENGTH, STEPS, ORDERS = 128, 4, 50, 200
COLD = 0.1  # a temperature below 1, as Lemmas 11 and 12 ask for
SHOWN = ("distances", "alpha", "increasing", "decreasing", "reached", "bound")
OPTIONS = take_options("stored")
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
        if subjects is None:
            if name in stored:
                result["arms"][name] = stored[name]
            continue
        temperature = COLD if name == "stdlib_cold" else 1.0
        found = result["arms"][name] = of_subjects(
            *subjects, quick=run.quick, temperature=temperature
        )
        print(name, found["kernel"]["at_0"], found["bound"], flush=True)
    result["search"] = {n: search(n, draws=200 if run.quick else DRAWS) for n in SEARCHED}
    print("search", result["search"], flush=True)
    if not stored:
        draw(run, {name: arm for name, arm in result["arms"].items() if name != "stdlib_cold"})
    for found in result["arms"].values():
        found.pop("pairs", None)  # the figure has them
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
        subject = read_subject(SubjectOptions(length=16 if run.quick else 64))
        return subject, None
    arm = name.removesuffix("_new")
    folder = None if ARMS[arm].pretrained is None else model_folder(arm)
    if ARMS[arm].pretrained is not None and folder is None:
        return None
    try:
        tokenizer = bert_vocabulary() if folder is None else tokenizer_of(folder)
        train, _ = labelled_sst2(tokenizer, length=LENGTH)
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
    found = audit(options, subject=usual)
    numbers, geometry = to_json(found), geometry_of(usual)
    position = document_geometry(usual.documents.corpus, seed=0)
    count = examples if spread is None else len(spread.documents.labels)
    model = position_loss(
        usual if spread is None else spread, examples=count, temperature=temperature
    )
    zero, b = kernel_and_forcing(model, seed=0)
    own, _ = kernel_and_forcing(model, seed=0, P=model.functions.vectors)
    lemma_18 = jax.jit(jaxpe.theory.lemma_18)(zero, b, geometry.D)
    shown = kernel_pairs(zero, b, geometry.D, lemma_18=lemma_18)
    return {
        "facts": numbers["facts"] | {"examples_of_every_length": len(model.examples["ids"])},
        "statements": {entry["name"]: brief(entry) for entry in numbers["statements"]},
        "kernel": of_kernel(
            model, geometry, position, np.asarray(zero), np.asarray(own), quick=quick
        ),
        "without_largest_entry": without_largest(shown),
        "bound": of_bound(lemma_18, shown),
        "training": numbers["training"],
        "pairs": {k: v for k, v in shown._asdict().items() if k in SHOWN},
        "seconds": found.seconds,
    }


def brief(entry: dict[str, Any]) -> dict[str, Any]:
    """Without what a statement's docstring says, and without arrays of more than a head each."""
    measured = {k: v for k, v in entry["measured"].items() if np.size(v) <= 16}
    return {k: entry[k] for k in ("verdict", "hypotheses", "conclusions", "instead")} | {
        "measured": measured
    }


def of_kernel(
    model: PositionLoss,
    geometry: Geometry,
    position: PositionGeometry,
    zero: np.ndarray,
    own: np.ndarray,
    *,
    quick: bool,
) -> dict[str, Any]:
    """Spectrum of α and what monotone functions of distances explain of it."""
    D = geometry.D
    kept = np.flatnonzero(D.present)
    n = len(kept)
    told = np.flatnonzero(np.asarray(position.present)[kept])
    occupied = np.asarray(model.examples["mask"], float)[:, kept]
    together = occupied.T @ occupied / len(occupied)
    zero, own = (alpha[np.ix_(kept, kept)] for alpha in (zero, own))
    size = np.sqrt(np.diag(zero))
    entries = {
        "at_0": zero,
        "at_own_P": own,
        "cosine": zero / np.outer(size, size),
        "of_a_document": zero / np.where(together > 0, together, 1.0),
    }
    distances = {
        "d_H": np.asarray(D.values)[np.ix_(kept, kept)],
        # Squared: only their order counts, and negative ones are no ties.
        "position": np.asarray(position.squared_distances)[np.ix_(kept, kept)],
        "offset": np.abs(kept[:, None] - kept[None, :]).astype(np.float32),
    }
    found: dict[str, Any] = {"positions": n, "positions_in_both_halves": len(told)}
    for name, alpha in entries.items():
        found[name] = {}
        for kind, d in distances.items():
            rows = told if kind == "position" else np.arange(n)
            if name == "of_a_document":
                rows = rows[(together[np.ix_(rows, rows)] > 0).all(axis=1)]
            found[name][kind] = explained(
                d[np.ix_(rows, rows)], alpha[np.ix_(rows, rows)], quick=quick
            )
    return found | {"spectrum_at_0": spectrum(zero), "spectrum_at_own_P": spectrum(own)}


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
    kept = np.abs(shown.alpha) < np.abs(shown.alpha).max()
    scaled = shown.alpha[kept] / np.abs(shown.alpha[kept]).max()
    fit = jax.jit(monotone_fit)(shown.distances[kept], scaled)
    return {
        "increasing": float(fit.explained_increasing),
        "decreasing": float(fit.explained_decreasing),
    }


def spectrum(alpha: np.ndarray) -> dict[str, Any]:
    """Eigenvalues, and the share of their sum in the first."""
    values = np.linalg.eigvalsh(alpha.astype(float))[::-1]
    share = values / values.sum()
    return {
        "eigenvalues": values,
        "first_share": share[0],
        "first_five_share": share[:5].sum(),
        "effective_rank": np.exp(-np.sum(share[share > 0] * np.log(share[share > 0]))),
        "condition": values[0] / values[-1] if values[-1] > 0 else np.inf,
    }


def of_bound(audit: Audit, shown: KernelPairs) -> dict[str, Any]:
    """Both sides of (13) over pairs: how many break it, and by how much the others are below."""
    numbers = {k: float(v) for k, v in audit.measured.items()}
    reached, bound = shown.reached, shown.bound
    with_n = numbers["constant of (13) with n"] * shown.distances
    return {
        "broken": float(np.mean(reached > bound)),
        "broken_with_n": float(np.mean(reached > with_n)),
        "above_2R": float(np.mean(bound >= 2 * numbers["R"])),
        "above_2R_with_n": numbers["share above 2R"],
        "broken_energy_bound": not bool(audit.instead["energy bound"].holds),
        "median_slack": float(np.median(bound / np.maximum(reached, 1e-30))),
        "violations_of_fixed_point": float(audit.conclusions["monotone"].lhs),
        "violations_of_d_H": float(audit.hypotheses["A3"].lhs),
        **{k: numbers[k] for k in ("C_b", "L_f", "R", "condition")},
    }


def draw(run: Run, arms: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "The kernel of positions is no increasing function of Hellinger distance",
        rows=2,
        columns=len(arms) + 1,
        width=2.2 * (len(arms) + 1) + 0.4,
        height=4.7,
    )
    for column, (name, found) in enumerate(arms.items()):
        draw_arm(axes[:, column], name, found)
    spectra, training = axes[:, -1]
    for (name, found), colour in zip(
        arms.items(), (GREY, ORANGE, BLUE, "#E8A0C0", VERMILION), strict=False
    ):
        values = np.asarray(found["kernel"]["spectrum_at_0"]["eigenvalues"], float)
        positive = np.where(values > 0, values, np.nan)
        spectra.semilogy(positive / values[0], color=colour, label=TITLES[name], lw=1.3)
        training.plot(found["training"]["output_distance"], color=colour, lw=1.3)
    spectra.set(title="spectrum of α\nat P = 0", xlabel="eigenvalue", ylabel="λ/λ₁")
    spectra.legend(fontsize=6, loc="lower left")
    training.set(
        title="linearised against real", xlabel="step", ylabel="‖f − f_lin‖/‖f_0‖", ylim=(0, None)
    )
    save_figure(run, "audit_theory", figure)


def draw_arm(column: Any, name: str, found: dict[str, Any]) -> None:
    """α_ij against d_H with both fits, and both sides of (13)."""
    kernel, bound = column
    shown = {k: np.asarray(v, float) for k, v in found["pairs"].items()}
    order = np.argsort(shown["distances"])
    dots = {"ms": 1.8, "alpha": 0.35, "rasterized": True}
    kernel.plot(shown["distances"], shown["alpha"], ".", color=GREY, **dots)
    for way, colour in (("increasing", VERMILION), ("decreasing", BLUE)):
        share = found["kernel"]["at_0"]["d_H"][way]
        label = f"{way}: {100 * share:.0f} %"
        kernel.plot(shown["distances"][order], shown[way][order], color=colour, label=label)
    kernel.set(xlabel="Hellinger distance", ylabel="α_ij at P = 0")
    kernel.set_title(TITLES[name].replace(", ", "\n", 1))
    kernel.legend(fontsize=7.5, title="explained", title_fontsize=7.5)
    right, left = shown["bound"], shown["reached"]
    if not np.isfinite(right).any():
        bound.axis("off")
        bound.text(0.5, 0.5, "(13) has no finite\nright side", ha="center")
        return
    bound.loglog(right, left, ".", color=BLUE, **dots)
    ends = [
        np.nanmin(np.concatenate([left[left > 0], right[right > 0]])),
        np.nanmax(np.concatenate([left, right])),
    ]
    bound.plot(ends, ends, color=GREY, lw=1)
    bound.set(xlabel="right side of (13)", ylabel="‖p*_i − p*_j‖")


if __name__ == "__main__":
    main(experiment, "audit_theory")
