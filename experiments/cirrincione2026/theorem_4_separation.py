"""Theorem 4 (positional separation): its hypotheses and its conclusion, measured on SST-2.

Theirs: if the loss is coercive in P and (H1) mean embeddings ē_i differ between positions, (H2)
swapping two positions raises the expected loss, (H3) M(ē_i − ē_j) ≠ 0, then every global minimiser
has p_i ≠ p_j; the hypotheses hold "in essentially every practical training scenario". Ours: H1 and
H3 with MiniLM's embeddings and first layer, H1 against its sampling noise (products between 16
folds of documents, jackknife errors); H2 and coercivity on the classifiers that
`figure_5_training.py` trained (its `--runs FOLDER`; skipped where there is none): loss over dev
sentences with the vectors p_i and p_j swapped, and with t·P in place of P; and gradient descent
from rows that are exactly equal, between text and beyond it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxpe
from experiments.cirrincione2026.figure_5_training import (
    ARMS,
    DEV_BUCKETS,
    folder_of,
    from_scratch,
    table,
    trained,
)
from experiments.common import (
    BLUE,
    GREY,
    VERMILION,
    Run,
    main,
    new_figure,
    save_figure,
)
from experiments.learning import (
    LENGTH,
    bert_vocabulary,
    dev_batches,
    folded_sst2,
    labelled_sst2,
    model_folder,
    pretrained,
    tokenizer_of,
    training_batches,
)
from jaxpe.data import LabelledTokens
from jaxpe.nn import Classifier, functionalize
from jaxpe.training import adamw, classification, evaluate, init_state, train_step

OFFSETS = (1, 2, 4, 8, 16)
FIRST = (1, 2, 3, 5, 8, 12, 16, 20)
FACTORS = (0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 1e2, 1e3, 1e4, 1e6)
WIDTH = 56  # no dev sentence is longer than 55 tokens
TWINS = {"text": (5, 6), "beyond": (100, 101)}


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {"twins": twins(steps=5 if run.quick else 100)}
    print("twins", result["twins"], flush=True)
    folder = model_folder("minilm")
    if folder is not None:
        encoder = pretrained(folder, "minilm").encoder
        mean = mean_embeddings(np.asarray(encoder.tokens.embedding.get_value()))
        result["H1"] = non_stationarity(mean)
        attention = encoder.layers.attention
        kernels = [np.asarray(k.kernel.get_value()[0]) for k in (attention.query, attention.key)]
        result["H3"] = non_degeneracy(mean, *kernels, heads=encoder.config.num_heads)
        print(result["H1"], result["H3"], flush=True)
    result["models"] = {}
    for name in ("minilm", "mini"):
        if (folder_of(run, name) / "checkpoints").is_dir():
            result["models"][name] = of_model(run, name)
            print(name, result["models"][name], flush=True)
        else:
            print(f"H2 and coercivity of {name}: skipped, figure_5_training.py has not run here")
    draw(run, result)
    return result


def mean_embeddings(embeddings: np.ndarray) -> np.ndarray:
    """ē by fold and position with text, `[folds, positions, dim]`; NaN where there is no token."""
    counts, words = folded_sst2()
    cells = np.asarray(counts.tokens)[:, :, : len(words)].astype(np.float32)
    cells = cells[:, np.asarray(counts.merged().per_position) > 0]
    sizes = cells.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(jnp.asarray(cells) @ jnp.asarray(embeddings[words])) / sizes


def non_stationarity(mean: np.ndarray) -> dict[str, Any]:
    """H1: ‖ē_i − ē_j‖² without sampling noise, Σ_{f≠g} Δ_f·Δ_g / F(F − 1), over its error."""
    everywhere = np.logical_not(np.isnan(mean).any(axis=(0, 2)))
    known = mean[:, everywhere]
    folds, n, _ = known.shape
    products = np.einsum("fid,gjd->fgij", known, known)
    own = np.einsum("fgii->fgi", products)
    between = own[..., :, None] + own[..., None, :] - products - products.swapaxes(-1, -2)
    between[np.arange(folds), np.arange(folds)] = 0
    total, of_fold = between.sum(axis=(0, 1)), between.sum(axis=1)
    squared = total / (folds * (folds - 1))
    without = (total - 2 * of_fold) / ((folds - 1) * (folds - 2))
    spread = ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    error = np.sqrt((folds - 1) / folds * spread)
    i, j = np.triu_indices(n, 1)
    z = squared[i, j] / error[i, j]
    plug_in = np.linalg.norm(known.mean(axis=0)[i] - known.mean(axis=0)[j], axis=1)
    occupied = mean.shape[1]
    empty = LENGTH - occupied
    return {
        "positions_with_text": occupied,
        "pairs_with_text": occupied * (occupied - 1) // 2,
        "pairs_of_empty_positions_that_coincide": empty * (empty - 1) // 2,
        "pairs_of_all": LENGTH * (LENGTH - 1) // 2,
        "positions_in_every_fold": n,
        "pairs_judged": len(z),
        "share_above_two_errors": float((z > 2).mean()),
        "share_above_two_errors_of_neighbours": float((z[j - i == 1] > 2).mean()),
        "least_z": float(z.min()),
        "least_plug_in_distance": float(plug_in.min()),
        "corrected_distance_of_that_pair": float(
            np.sqrt(max(squared[i, j][plug_in.argmin()], 0.0))
        ),
        "pair_of_least_distance": [
            int(np.flatnonzero(everywhere)[k[plug_in.argmin()]]) for k in (i, j)
        ],
    }


def non_degeneracy(
    mean: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, *, heads: int
) -> dict[str, Any]:
    """H3: least ‖ΔM‖/(‖M‖‖Δ‖) and ‖MΔ‖/(‖M‖‖Δ‖) over pairs, whole width and worst head."""
    means = np.nanmean(mean, axis=0)
    i, j = np.triu_indices(len(means), 1)
    difference = means[i] - means[j]
    length = np.linalg.norm(difference, axis=1)

    def least(W_Q: np.ndarray, W_K: np.ndarray) -> dict[str, float]:
        norm = np.linalg.norm(W_Q @ W_K.T, 2)
        sides = {"row": difference @ W_Q @ W_K.T, "column": difference @ W_K @ W_Q.T}
        return {
            side: float((np.linalg.norm(x, axis=1) / (norm * length)).min())
            for side, x in sides.items()
        }

    each = [
        least(q, k)
        for q, k in zip(np.split(W_Q, heads, axis=1), np.split(W_K, heads, axis=1), strict=True)
    ]
    worst = {side: min(head[side] for head in each) for side in ("row", "column")}
    return {"whole_width": least(W_Q, W_K), "worst_head": worst}


def of_model(run: Run, name: str) -> dict[str, Any]:
    """H2, coercivity and the conclusion for a classifier that figure_5_training.py trained."""
    model, result = trained(run, name)
    params = result.state.params
    source = None if ARMS[name].pretrained is None else model_folder(name)
    dev = labelled_sst2(bert_vocabulary() if source is None else tokenizer_of(source))[1]
    P = table(model, params)
    reached = jnp.arange(LENGTH) < 66
    return {
        "order_sensitivity": order_sensitivity(model, params, dev, quick=run.quick),
        "loss_of_scaled_P": scaled_tables(model, params, dev, quick=run.quick),
        "min_separation": float(jaxpe.min_separation(P)),
        "min_separation_of_reached": float(jaxpe.min_separation(P, present=reached)),
    }


def order_sensitivity(
    model: Classifier, params: Any, dev: LabelledTokens, *, quick: bool
) -> dict[str, Any]:
    """H2: the change of the mean loss when p_i and p_j are swapped, with paired errors."""
    ids, mask = dev.corpus.ids[:, :WIDTH], dev.corpus.mask[:, :WIDTH]
    lengths = mask.sum(axis=1)
    apply, _ = functionalize(model)

    @jax.jit
    def losses(params, ids, mask, labels, positions):
        logits = apply(params, ids, mask=mask, positions=positions).logits
        log_p = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(log_p, labels[:, None], axis=1)[:, 0]

    def of(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """In one shape: fewer rows are filled up with copies of the first."""
        filled = np.resize(rows, 218) if len(rows) < 218 else rows[:218]
        found = losses(params, ids[filled], mask[filled], dev.labels[filled], positions)
        return np.asarray(found)[: len(rows)]

    straight = np.arange(WIDTH)
    quarters = np.split(np.arange(len(ids)), 4)
    before = np.concatenate([of(rows, straight) for rows in quarters])
    pairs = []
    for i in FIRST[:2] if quick else FIRST:
        for offset in OFFSETS[:2] if quick else OFFSETS:
            j = i + offset
            rows = np.flatnonzero(lengths > j + 1)[:218]
            swapped = straight.copy()
            swapped[[i, j]] = j, i
            change = of(rows, swapped) - before[rows]
            error = change.std(ddof=1) / np.sqrt(len(rows))
            pairs.append(
                {"i": i, "j": j, "sentences": len(rows), "change": change.mean(), "error": error}
            )
    z = np.array([pair["change"] / pair["error"] for pair in pairs])
    order = np.concatenate([[0], 1 + np.random.default_rng(0).permutation(WIDTH - 1)])
    shuffled = np.concatenate([of(rows, order) for rows in quarters])
    return {
        "mean_loss": before.mean(),
        "mean_loss_all_shuffled": shuffled.mean(),
        "error_of_that_change": (shuffled - before).std(ddof=1) / np.sqrt(len(before)),
        "share_of_pairs_that_raise_the_loss": (z > 0).mean(),
        "share_raised_by_two_errors": (z > 2).mean(),
        "share_lowered_by_two_errors": (z < -2).mean(),
        "pairs": pairs,
    }


def scaled_tables(
    model: Classifier, params: Any, dev: LabelledTokens, *, quick: bool
) -> dict[str, list[float]]:
    """Coercivity: dev loss with t·P in place of P."""
    graphdef, _ = nnx.split(model, nnx.Param)
    loss = classification(functionalize(model)[0], train=False)
    judged = list(dev_batches(dev, batch_size=218, buckets=DEV_BUCKETS))[: 1 if quick else None]
    found: dict[str, list[float]] = {"factors": list(FACTORS), "loss": [], "accuracy": []}
    for factor in FACTORS:
        whole = nnx.merge(graphdef, params)
        own = whole.encoder.encoding_params.get_value()
        whole.encoder.encoding_params = nnx.Param({"table": factor * own["table"]})
        scores = evaluate(loss, nnx.split(whole, nnx.Param)[1], judged)
        found["loss"].append(scores["loss"])
        found["accuracy"].append(scores["accuracy"])
    return found


def twins(*, steps: int) -> dict[str, Any]:
    """Gradient descent from p_i = p_j: of two positions with text, and of two beyond it."""
    train, _ = labelled_sst2(bert_vocabulary())
    model = from_scratch(64, 2, 2)(None)
    own = model.encoder.encoding_params.get_value()["table"]
    for i, j in TWINS.values():
        own = own.at[j].set(own[i])
    model.encoder.encoding_params = nnx.Param({"table": own})
    apply, params = functionalize(model)
    optimizer = adamw(2e-4)
    state = init_state(params, optimizer, key=jax.random.key(0))
    step = train_step(classification(apply), optimizer)
    found: dict[str, Any] = {"steps": [0], "text": [0.0], "beyond": [0.0]}
    data = training_batches(train, batch_size=64, seed=0, buckets=(72,))
    for number, batch in zip(range(1, steps + 1), data, strict=False):
        state, _ = step(state, batch)
        P = table(model, state.params)
        found["steps"].append(number)
        for name, (i, j) in TWINS.items():
            found[name].append(float(jnp.linalg.norm(P[i] - P[j])))
    reached = jaxpe.euclidean_distances(table(model, state.params)[:66]).values
    return found | {"mean_distance": float(reached.sum() / (66 * 65))}


def draw(run: Run, result: dict[str, Any]) -> None:
    figure, axes = new_figure(
        "Theorem 4: the loss is bounded; swaps matter to MiniLM, hardly from scratch",
        columns=3,
        width=10.2,
        height=3.5,
    )
    scaled, swaps, equal = axes[0]
    for name, colour in (("minilm", BLUE), ("mini", VERMILION)):
        if name not in result["models"]:
            continue
        found = result["models"][name]
        curve = found["loss_of_scaled_P"]
        scaled.plot(
            curve["factors"], curve["loss"], "o-", ms=3.5, color=colour, label=ARMS[name].title
        )
        pairs = found["order_sensitivity"]["pairs"]
        swaps.errorbar(
            np.arange(len(pairs)) + (0.2 if name == "mini" else 0),
            [pair["change"] for pair in pairs],
            [2 * pair["error"] for pair in pairs],
            fmt="o",
            ms=3,
            lw=1,
            color=colour,
        )
    scaled.set_xscale("symlog", linthresh=0.1)
    scaled.set_xticks((0, 1, 1e2, 1e4, 1e6), ("0", "1", "10²", "10⁴", "10⁶"))
    scaled.set(xlabel="t", ylabel="dev loss with t·P", ylim=(0, None))
    if result["models"]:
        scaled.legend(fontsize=8.5)
    swaps.axhline(0, color=GREY, lw=1)
    swaps.set(
        xlabel="pair (i, j)", ylabel="change of dev loss", title="p_i and p_j swapped (± 2 errors)"
    )
    steps = result["twins"]["steps"]
    for where, colour, label in (("text", BLUE, "5 and 6"), ("beyond", VERMILION, "100 and 101")):
        equal.plot(steps, result["twins"][where], color=colour, label=f"positions {label}")
    equal.set(xlabel="step", ylabel="‖p_i − p_j‖", title="trained from equal rows")
    equal.legend(fontsize=8.5)
    save_figure(run, "theorem_4_separation", figure)


if __name__ == "__main__":
    main(experiment, "theorem_4_separation")
