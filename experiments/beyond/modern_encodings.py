"""Encodings of 2024 to 2026 beside RoPE, ALiBi and none, on words of IMDB.

Next words: a decoder of two layers learns from the first 48 words of reviews until its loss has
stopped falling (`learning_tasks.train`), each encoding at the best of three rates on a short run,
and then reads 192 words of reviews that it never saw, the same ones at every place. Data, seeds and
the weights that shapes allow are the same for all; differences from RoPE are taken seed by seed.

Every cell is kept under `runs/` of the folder of results; a second call makes those that are
missing.
"""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import Run, main, new_figure, save_figure
from experiments.learning import interval, once
from experiments.learning_tasks import LENGTH, SIZES, Rows, Tagger, Task, next_words, train
from jaxpe import encodings
from jaxpe.analysis.extrapolation.encodings import (
    stretched_encoding,
    trained_as,
    trained_encoding,
)
from jaxpe.encodings import EncodingSizes, LayerPattern, identity, interleaved_layers
from jaxpe.nn import functionalize
from jaxpe.training.losses import cross_entropy

LONG = 4 * LENGTH
PARTS = {"up to T": (0, LENGTH), "T to 2T": (LENGTH, 2 * LENGTH), "2T to 4T": (2 * LENGTH, LONG)}
SEEDS, RATES = 3, (3e-3, 1e-2, 3e-2)
MOST = 3000
QUICK: dict[str, Any] = {"most": 20, "window": 5, "tail": 6}
GROUPS = {
    "before 2024": ("none", "rope", "alibi"),
    "look at tokens": (
        "fox", "cable", "grape_a", "path", "selective_rope", "inkling", "dape",
    ),
    "turn otherwise": ("pope", "fope", "grape_m"),
    "add to logits": ("deberta",),
    "change the softmax": ("ssmax", "rope_ssmax"),
    "by layer or window": (
        "rope_then_none", "window_then_rope", "chunks_then_none", "sliding_window",
    ),
    "RoPE, tested otherwise": (
        "rope_dynamic", "rope_yarn", "rerope", "rerope_leaky", "self_extend", "dual_chunk",
    ),
}  # fmt: skip


# Patterns of released models have periods of four and six layers; these are two deep.


def rope_then_none(sizes: EncodingSizes) -> LayerPattern:
    """SmolLM3 and RNoPE with a period of two."""
    return interleaved_layers(encodings.rope(head_dim=sizes.head_dim), identity(), period=2)


def window_then_rope(sizes: EncodingSizes) -> LayerPattern:
    """Gemma 3 with a period of two, windows of a third of the training length."""
    return encodings.gemma3(head_dim=sizes.head_dim, window=max(2, sizes.length // 3), period=2)


def chunks_then_none(sizes: EncodingSizes) -> LayerPattern:
    """Llama 4 with a period of two, chunks of the training length."""
    return encodings.llama4(
        head_dim=sizes.head_dim, chunk=sizes.length, temperature_period=sizes.length, period=2
    )


def rope_ssmax(sizes: EncodingSizes) -> encodings.Encoding:
    return encodings.chain(
        encodings.rope(head_dim=sizes.head_dim),
        encodings.ssmax(num_heads=sizes.num_heads),
    )


OWN = {f.__name__: f for f in (rope_then_none, window_then_rope, chunks_then_none, rope_ssmax)}


def named(name: str) -> str:
    """As `jaxpe extrapolate` takes it."""
    return f"experiments.beyond.modern_encodings:{name}" if name in OWN else name


def experiment(run: Run) -> dict[str, Any]:
    kept = run.out / "runs" / ("modern_encodings_quick" if run.quick else "modern_encodings")
    names = [name for group in GROUPS.values() for name in group]
    if run.quick:
        names = ["none", "rope", "fox", "rope_then_none", "rerope"]
    words = words_learned(names, kept, quick=run.quick)
    draw_words(run, words["encodings"])
    return {"groups": GROUPS, "words": words}


def words_learned(names: list[str], kept: Path, *, quick: bool) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in names:
        rows[name] = once(kept / f"words-{name}.json", words_of, name, quick=quick)
    for row in rows.values():
        by_part = row["by_part"]
        row["parts"] = {part: _summary(values) for part, values in by_part.items()}
        for other in ("rope", "alibi"):
            if other in rows:
                row[f"against_{other}"] = {
                    part: _summary(np.subtract(values, rows[other]["by_part"][part]))
                    for part, values in by_part.items()
                }
        row["defined"] = bool(np.all(np.isfinite(by_part["2T to 4T"])))
    return {
        "trained_at": LENGTH,
        "tested_at": LONG,
        "held_out_reviews": len(long_rows(quick=quick).ids),
        "seeds": SEEDS,
        "encodings": rows,
    }


def words_of(name: str, *, quick: bool) -> dict[str, Any]:
    """Held-out loss by place of every seed; of what is tested otherwise, of RoPE's models."""
    task, rows = words_task(quick=quick), long_rows(quick=quick)
    params, found = models(trained_as(named(name)), quick=quick)
    try:
        tested = stretched_encoding(named(name), SIZES, LONG)
        by_place = losses_by_place(task, tested, params, rows)  # [seeds, places]
    except ValueError:  # such as a learned table, which ends
        rows = Rows(*(x[:, :LENGTH] for x in rows))
        by_place = losses_by_place(task, trained_encoding(named(name), SIZES), params, rows)
    undefined = np.full((len(by_place), LONG - by_place.shape[1]), np.nan)
    by_place = np.concatenate([by_place, undefined], axis=1)
    by_part = {part: _mean(by_place[:, a:b]).tolist() for part, (a, b) in PARTS.items()}
    return found | {"by_part": by_part, "by_place": by_place.mean(axis=0).round(4).tolist()}


@cache
def models(name: str, *, quick: bool) -> tuple[Any, dict[str, Any]]:
    """Parameters of all seeds, and how they were trained, at the best rate of short runs."""
    task, encoding = words_task(quick=quick), trained_encoding(name, SIZES)
    rate = 3e-3 if quick else RATES[int(np.argmin(_losses_by_rate(task, encoding)))]
    trained = train(task, encoding, rate=rate, seeds=SEEDS, **(QUICK if quick else {"most": MOST}))
    return trained.params[trained.steps], {
        "rate": rate,
        "held_out": trained.held_out.tolist(),
        "steps": trained.steps,
        "seconds": trained.seconds,
    }


def _losses_by_rate(task: Task, encoding: Any) -> np.ndarray:
    """Held-out loss of one seed after a short training at every rate."""
    short: dict[str, Any] = {"seeds": 1, "most": 450, "window": 450, "tail": 150}
    losses = [train(task, encoding, rate=rate, **short).held_out[0] for rate in RATES]
    return np.nan_to_num(losses, nan=1e9)


@cache
def _long_task(quick: bool) -> Task:
    return next_words(3000 if quick else None, length=LONG)


@cache
def words_task(*, quick: bool) -> Task:
    """The first words of the reviews; the words that are told apart are those of whole ones."""
    task = _long_task(quick)
    cut = [Rows(*(x[:, :LENGTH] for x in rows)) for rows in (task.train, task.held_out)]
    return task._replace(train=cut[0], held_out=cut[1], plain=task.plain[:, :LENGTH])


@cache
def long_rows(*, quick: bool) -> Rows:
    """Held-out reviews that fill every place."""
    held_out = _long_task(quick).held_out
    return held_out.take(held_out.mask.all(axis=1))


def losses_by_place(task: Task, encoding: Any, params: Any, rows: Rows) -> np.ndarray:
    """Mean loss in nats at every place, `[seeds, n]`; words that are rare are not scored."""
    apply, _ = functionalize(Tagger(task, encoding, jax.random.key(0)))

    @jax.jit
    def sums(params: Any, rows: Rows) -> Any:
        def of_seed(params: Any) -> Any:
            logits = apply(params, rows.ids, mask=rows.mask)
            one = jax.vmap(jax.vmap(lambda z, y: cross_entropy(z, y).total))
            return jnp.sum(jnp.where(rows.scored, one(logits, rows.labels), 0.0), axis=0)

        return jax.lax.map(of_seed, params), jnp.sum(rows.scored, axis=0)

    size = 100 if len(rows.ids) >= 100 else len(rows.ids)
    whole = len(rows.ids) // size * size
    parts = [sums(params, rows.take(slice(k, k + size))) for k in range(0, whole, size)]
    total = sum(np.asarray(part[0], float) for part in parts)
    scored = sum(np.asarray(part[1]) for part in parts)
    return np.where(scored > 0, total / np.maximum(scored, 1), np.nan)  # no word follows the last


def _mean(by_place: np.ndarray) -> np.ndarray:
    """Over the places where words follow, of each seed; NaN where there is none."""
    some = np.isfinite(by_place).any(axis=0)
    return by_place[:, some].mean(axis=1) if some.any() else np.full(len(by_place), np.nan)


def _summary(values: Any) -> dict[str, float]:
    """Mean over seeds and half of its 95 % interval."""
    return {"mean": float(np.mean(values)), "half": interval([float(x) for x in values])}


def draw_words(run: Run, of: dict[str, Any]) -> None:
    title = "Next words of IMDB reviews, trained on the first 48; grey: RoPE"
    figure, axes = new_figure(title, columns=4, rows=2, width=9.4, height=4.8)
    smooth = {name: _smooth(row["by_place"]) for name, row in of.items()}
    low = np.nanmin([curve[8:] for curve in smooth.values()])
    for axis, (group, names) in zip(axes.flat, GROUPS.items(), strict=False):
        axis.plot(smooth["rope"], color="#bbbbbb", linewidth=2.5)
        for name in (name for name in names if name in of):
            axis.plot(smooth[name], label=name, linewidth=1.2)
        axis.axvline(LENGTH, color="#bbbbbb", linewidth=1)
        axis.set(title=group, ylim=(low - 0.05, low + 1.1))
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7.5, loc="upper left")
    axes.flat[-1].set_axis_off()
    figure.supxlabel("place")
    figure.supylabel("held-out loss, nats")
    save_figure(run, "modern_encodings_words", figure)


def _smooth(values: list[float], width: int = 9) -> np.ndarray:
    """Means of neighbours, of fewer at both ends; NaN stays."""
    x = np.asarray(values, float)
    near = [np.nanmean(x[max(0, k - width // 2) : k + width // 2 + 1]) if np.isfinite(at) else at
            for k, at in enumerate(x)]  # fmt: skip
    return np.array(near)


if __name__ == "__main__":
    main(experiment, Path(__file__).stem)
