"""Theorem 4 (positional separation): its hypotheses and its conclusion, measured on SST-2.

(H1) and (H3) with MiniLM's embeddings and first layer, (H1) against its sampling noise (products
between 16 folds of documents, jackknife errors). (H2) and coercivity on the classifiers that
`figure_5_training.py` trained (its `--runs FOLDER`; skipped where there is none): loss over dev
sentences with the vectors p_i and p_j swapped, and with t·P in place of P. And gradient descent
from rows that are exactly equal, between text and beyond it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import learning
from experiments.cirrincione2026 import figure_5_training as figure_5
from experiments.common import Run, main
from jaxpe import geometry
from jaxpe.data.corpora.labelled import LabelledTokens
from jaxpe.nn import Classifier, functionalize
from jaxpe.training import adamw, classification, evaluate, init_state, train_step

OFFSETS = (1, 2, 4, 8, 16)
FIRST = (1, 2, 3, 5, 8, 12, 16, 20)
FACTORS = (0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 1e2, 1e3, 1e4, 1e6)
WIDTH = 56  # no dev sentence is longer than 55 tokens
TWINS = {"text": (5, 6), "beyond": (100, 101)}


def experiment(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = {"twins": twins(steps=5 if run.quick else 100), "models": {}}
    folder = learning.model_folder("minilm")
    if folder is not None:
        encoder = learning.pretrained(folder, "minilm").encoder
        mean = mean_embeddings(np.asarray(encoder.tokens.embedding.get_value()))
        result["H1"] = non_stationarity(mean)
        attention = encoder.layers.attention
        kernels = [np.asarray(k.kernel.get_value()[0]) for k in (attention.query, attention.key)]
        result["H3"] = non_degeneracy(mean, *kernels, heads=encoder.config.num_heads)
    for name in ("minilm", "mini"):
        if (figure_5.folder_of(run, name) / "checkpoints").is_dir():
            result["models"][name] = of_model(run, name)
        else:
            print(f"H2 and coercivity of {name}: skipped, figure_5_training.py has not run here")
    print(result)
    return result


def mean_embeddings(embeddings: np.ndarray) -> np.ndarray:
    """ē by fold and position with text, `[folds, positions, dim]`; NaN where there is no token."""
    counts, words = learning.folded_sst2()
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
    empty = learning.LENGTH - mean.shape[1]
    return {
        "positions_with_text": mean.shape[1],
        "pairs_of_empty_positions_that_coincide": empty * (empty - 1) // 2,
        "positions_in_every_fold": n,
        "pairs_judged": len(z),
        "share_above_two_errors": float((z > 2).mean()),
        "share_above_two_errors_of_neighbours": float((z[j - i == 1] > 2).mean()),
    }


def non_degeneracy(
    mean: np.ndarray, W_Q: np.ndarray, W_K: np.ndarray, *, heads: int
) -> dict[str, Any]:
    """H3: least ‖ΔM‖/(‖M‖‖Δ‖) over pairs, whole width and worst head."""
    means = np.nanmean(mean, axis=0)
    i, j = np.triu_indices(len(means), 1)
    difference = means[i] - means[j]
    length = np.linalg.norm(difference, axis=1)

    def least(W_Q: np.ndarray, W_K: np.ndarray) -> float:
        M = W_Q @ W_K.T
        moved = np.linalg.norm(difference @ M, axis=1)
        return float((moved / (np.linalg.norm(M, 2) * length)).min())

    split = (np.split(W, heads, axis=1) for W in (W_Q, W_K))
    worst = min(least(*head) for head in zip(*split, strict=True))
    return {"whole_width": {"row": least(W_Q, W_K)}, "worst_head": {"row": worst}}


def of_model(run: Run, name: str) -> dict[str, Any]:
    """H2, coercivity and the conclusion for a classifier that figure_5_training.py trained."""
    model, result = figure_5.trained(run, name)
    params = result.state.params
    source = None if figure_5.ARMS[name].pretrained is None else learning.model_folder(name)
    tokenizer = learning.bert_vocabulary() if source is None else learning.tokenizer_of(source)
    dev = learning.labelled_sst2(tokenizer)[1]
    return {
        "order_sensitivity": order_sensitivity(model, params, dev, quick=run.quick),
        "loss_of_scaled_P": scaled_tables(model, params, dev, quick=run.quick),
        "min_separation": float(geometry.min_separation(figure_5.table(model, params))),
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
    z = []
    for i in FIRST[:2] if quick else FIRST:
        for offset in OFFSETS[:2] if quick else OFFSETS:
            j = i + offset
            rows = np.flatnonzero(lengths > j + 1)[:218]
            swapped = straight.copy()
            swapped[[i, j]] = j, i
            change = of(rows, swapped) - before[rows]
            z.append(change.mean() / (change.std(ddof=1) / np.sqrt(len(rows))))
    order = np.concatenate([[0], 1 + np.random.default_rng(0).permutation(WIDTH - 1)])
    shuffled = np.concatenate([of(rows, order) for rows in quarters])
    return {
        "mean_loss": before.mean(),
        "mean_loss_all_shuffled": shuffled.mean(),
        "share_of_pairs_that_raise_the_loss": np.mean(np.array(z) > 0),
        "share_raised_by_two_errors": np.mean(np.array(z) > 2),
        "share_lowered_by_two_errors": np.mean(np.array(z) < -2),
    }


def scaled_tables(
    model: Classifier, params: Any, dev: LabelledTokens, *, quick: bool
) -> dict[str, list[float]]:
    """Coercivity: dev loss with t·P in place of P."""
    graphdef, _ = nnx.split(model, nnx.Param)
    loss = classification(functionalize(model)[0], train=False)
    judged = list(learning.dev_batches(dev, batch_size=218, buckets=figure_5.DEV_BUCKETS))
    losses = []
    for factor in FACTORS:
        whole = nnx.merge(graphdef, params)
        own = whole.encoder.encoding_params.get_value()
        whole.encoder.encoding_params = nnx.Param({"table": factor * own["table"]})
        scores = evaluate(loss, nnx.split(whole, nnx.Param)[1], judged[: 1 if quick else None])
        losses.append(scores["loss"])
    return {"factors": list(FACTORS), "loss": losses}


def twins(*, steps: int) -> dict[str, Any]:
    """Gradient descent from p_i = p_j: of two positions with text, and of two beyond it."""
    train, _ = learning.labelled_sst2(learning.bert_vocabulary())
    model = figure_5.from_scratch(64, 2, 2)(None)
    own = model.encoder.encoding_params.get_value()["table"]
    for i, j in TWINS.values():
        own = own.at[j].set(own[i])
    model.encoder.encoding_params = nnx.Param({"table": own})
    apply, params = functionalize(model)
    optimizer = adamw(2e-4)
    state = init_state(params, optimizer, key=jax.random.key(0))
    step = train_step(classification(apply), optimizer)
    found: dict[str, Any] = {"steps": [0], "text": [0.0], "beyond": [0.0]}
    data = learning.training_batches(train, batch_size=64, seed=0, buckets=(72,))
    for number, batch in zip(range(1, steps + 1), data, strict=False):
        state, _ = step(state, batch)
        P = figure_5.table(model, state.params)
        found["steps"].append(number)
        for name, (i, j) in TWINS.items():
            found[name].append(float(jnp.linalg.norm(P[i] - P[j])))
    reached = geometry.euclidean_distances(figure_5.table(model, state.params)[:66]).values
    return found | {"mean_distance": float(reached.sum() / (66 * 65))}


if __name__ == "__main__":
    main(experiment, "theorem_4_separation")
