"""Train short, test long: causal language models of 64 words read texts eight times as long.

RoPE is trained at T = 64 and given each published scaling of its frequencies at 64 to 512 words
without any training there, and after a short one; ALiBi and no encoding stand beside it.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments import common
from experiments.common import GREY, Run
from experiments.learning import interval
from jaxpe import encodings, nn, spectral, training
from jaxpe.data import load_tokens

BLOCK = 16  # words whose loss is averaged
CHUNK = 16  # documents at a time


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of data, model and training; the defaults train in minutes on two cores."""

    vocab_size: int = 2048  # the last id stands for all rarer words
    dim: int = 64
    heads: int = 4
    layers: int = 2
    length: int = 64  # T, of training
    batch: int = 16
    steps: int = 800
    rate: float = 3e-3
    seeds: int = 3
    tests: tuple[int, ...] = (128, 256, 512)
    held_out: int = 192  # documents of more than 512 words
    tune_steps: int = 100
    tune_length: int = 256
    tune_rate: float = 1e-3
    read: int = 96  # of the held-out documents, by every arm
    traced: int = 16  # of those, documents whose attention is looked at
    models: tuple[str, ...] = ("rope", "alibi", "nope")
    scalings: tuple[str, ...] = (
        "none", "linear", "ntk", "dynamic", "yarn", "parts", "slow", "fast", "one",
    )  # fmt: skip
    tuned: tuple[str, ...] = ("none", "linear", "yarn")

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


QUICK = Sizes(
    vocab_size=256, dim=16, heads=2, layers=1, steps=10, seeds=2, tests=(128,), held_out=16,
    tune_steps=2, tune_length=128, read=16, models=("rope", "nope"),
    scalings=("none", "yarn"), tuned=("yarn",),
)  # fmt: skip


def frequencies(sizes: Sizes, **scaled: Any) -> np.ndarray:
    return np.asarray(encodings.rope_frequencies(head_dim=sizes.head_dim, **scaled).inverse)


def slow(sizes: Sizes) -> np.ndarray:
    """Frequencies that make less than a turn in T words: they come to angles not seen before."""
    return frequencies(sizes) * sizes.length < 2 * np.pi


def some_divided(sizes: Sizes, length: int, chosen: np.ndarray) -> encodings.LongRopeScaling:
    """ω/s for the chosen frequencies alone."""
    divisors = tuple(np.where(chosen, length / sizes.length, 1.0).tolist())
    return encodings.LongRopeScaling(divisors, divisors, sizes.length, attention_factor=1.0)


# Of a model trained at T, for a text of length L = sT.
SCALINGS: dict[str, Callable[[int, Sizes], Any]] = {
    "none": lambda L, sizes: None,
    "linear": lambda L, sizes: encodings.LinearScaling(L / sizes.length),
    "ntk": lambda L, sizes: encodings.NtkScaling(L / sizes.length),
    "dynamic": lambda L, sizes: encodings.DynamicScaling(L / sizes.length, sizes.length),
    "yarn": lambda L, sizes: encodings.YarnScaling(L / sizes.length, sizes.length),
    "parts": lambda L, sizes: encodings.NtkByPartsScaling(L / sizes.length, sizes.length),
    "slow": lambda L, sizes: some_divided(sizes, L, slow(sizes)),
    "fast": lambda L, sizes: some_divided(sizes, L, ~slow(sizes)),
    "one": lambda L, sizes: some_divided(sizes, L, np.cumsum(slow(sizes)) == 1),
}


def angles(sizes: Sizes) -> dict[str, Any]:
    """Turns that each pair of entries makes in T words, and how many times as far it then goes."""
    L, plain = max(sizes.tests), frequencies(sizes)
    found: dict[str, Any] = {"turns": plain * sizes.length / (2 * np.pi), "times_as_far": {}}
    for name in sizes.scalings:
        own = frequencies(sizes, scaling=SCALINGS[name](L, sizes), length=L)
        found["times_as_far"][name] = own * L / (plain * sizes.length)
    return found


class Data(NamedTuple):
    """Ids of documents to train on, `[documents, n]` with how many are text, and held out."""

    fit: np.ndarray
    lengths: np.ndarray
    held_out: np.ndarray  # [documents, longest test + 1], no padding


def experiment(run: Run) -> dict[str, Any]:
    sizes = QUICK if run.quick else Sizes()
    data = reviews(sizes)
    models = {name: trained(name, data, sizes) for name in sizes.models}
    windows = {name: sliding(model(name, sizes), own, data, sizes) for name, own in models.items()}
    losses = extrapolated(models, data, sizes)
    positions = by_position(losses, windows, sizes)
    result = {
        "sizes": dataclasses.asdict(sizes),
        "angles": angles(sizes),
        "lengths": by_length(losses, windows, sizes),
        "positions": positions,
        "over_no_scaling": over_no_scaling(positions["arms"], sizes),
        "fine_tuned": after_tuning(models["rope"], data, sizes),
        "attention": attention(models, data, sizes),
    }
    draw_losses(run, result)
    return result


def reviews(sizes: Sizes) -> Data:
    """IMDB in words. What is held out is long enough for the longest test; the rest trains."""
    longest = max(sizes.tests) + 1
    path = Path(os.environ.get("JAXPE_DATA_DIR", ".")) / "imdb" / "train.jsonl.gz"
    if not path.is_file():
        raise common.DataMissingError("JAXPE_DATA_DIR names no folder with imdb/train.jsonl.gz")
    corpus = load_tokens("imdb", length=longest)
    ids = np.minimum(corpus.ids, sizes.vocab_size - 1)
    lengths = corpus.mask.sum(axis=1)
    long = np.random.default_rng(0).permutation(np.flatnonzero(lengths == longest))
    held_out = long[: sizes.held_out]
    fit = np.setdiff1d(np.flatnonzero(lengths > sizes.length), held_out)
    return Data(ids[fit], lengths[fit], ids[held_out[: sizes.read]])


def encoding_of(name: str, sizes: Sizes, *, length: int | None = None) -> encodings.Encoding:
    """ALiBi, none, or RoPE with a scaling for texts of this length (plain where there is none)."""
    if name == "alibi":
        return encodings.alibi(num_heads=sizes.heads)
    if name == "nope":
        return encodings.identity()
    scaling = None if length is None else SCALINGS[name](length, sizes)
    return encodings.rope(head_dim=sizes.head_dim, scaling=scaling, length=length)


def build(encoding: encodings.Encoding, sizes: Sizes, key: jax.Array) -> nn.CausalLM:
    config = nn.TransformerConfig(
        vocab_size=sizes.vocab_size,
        dim=sizes.dim,
        num_layers=sizes.layers,
        num_heads=sizes.heads,
        init_scale=0.7 * sizes.dim**-0.5,
        embedding_scale=0.1,
    )
    return nn.CausalLM(nn.Decoder(config, encoding=encoding, rngs=nnx.Rngs(key)), rngs=nnx.Rngs(0))


def model(name: str, sizes: Sizes, *, length: int | None = None) -> Callable[..., Any]:
    """`(params, ids)` to logits; parameters of one RoPE model serve all scalings."""
    encoding = encoding_of(name, sizes, length=length)
    return nn.functionalize(build(encoding, sizes, jax.random.key(0)))[0]


def trained(name: str, data: Data, sizes: Sizes) -> Any:
    """All seeds of a model, trained on windows of T words."""
    make = partial(build, encoding_of(name, sizes), sizes)
    start = jax.jit(jax.vmap(lambda key: nnx.split(make(key), nnx.Param)[1]))
    params = start(jax.random.split(jax.random.key(0), sizes.seeds))
    how = {"peak": sizes.rate, "steps": sizes.steps, "warmup": math.ceil(0.06 * sizes.steps)}
    return optimised(model(name, sizes), how, sizes.length, params, data, sizes)


def fine_tuned(name: str, *, before: Any, data: Data, sizes: Sizes) -> Any:
    """The RoPE models trained on at a longer length under a scaling; "short" continues at T."""
    short = name == "short"
    length = sizes.length if short else sizes.tune_length
    apply = model("rope", sizes) if short else model(name, sizes, length=length)
    how = {"peak": sizes.tune_rate, "steps": sizes.tune_steps, "warmup": 1}
    return optimised(apply, how, length, before, data, sizes)


def optimised(apply, how: dict[str, Any], length: int, params, data: Data, sizes: Sizes) -> Any:
    """All seeds at once, each on windows of its own; as many words a step at every length."""
    schedule = training.learning_rate_schedule(**how, decay="cosine")
    optimizer = training.adamw(schedule, weight_decay=0.01)
    step = jax.vmap(training.step_function(training.causal_lm(apply), optimizer))
    keys = jax.random.split(jax.random.key(1), sizes.seeds)
    states = jax.vmap(lambda p, key: training.init_state(p, optimizer, key=key))(params, keys)
    rows = max(1, sizes.batch * sizes.length // length)

    @partial(jax.jit, donate_argnums=0)
    def some_steps(states, ids):
        def one(states, ids):
            states, metrics = step(states, {"ids": ids, "mask": jnp.ones(ids.shape, bool)})
            return states, metrics["loss"]

        return jax.lax.scan(one, states, ids)

    rng, every = np.random.default_rng(2), math.gcd(how["steps"], 50)
    for _ in range(how["steps"] // every):
        ids = drawn(rng, data, (every, sizes.seeds, rows), length + 1)
        states, loss = some_steps(states, ids)
        print(f"{length} words: loss {np.mean(loss):.3f}", flush=True)
    return jax.device_get(states.params)


def drawn(rng: np.random.Generator, data: Data, shape: tuple[int, ...], length: int):
    """Words that stand together anywhere in a document, `[*shape, length]`."""
    enough = np.flatnonzero(data.lengths >= length)
    document = rng.choice(enough, shape)
    start = rng.integers(0, data.lengths[document] - length + 1)
    return data.fit[document[..., None], start[..., None] + np.arange(length)]


def losses_of(apply, params: Any, ids: np.ndarray) -> np.ndarray:
    """Loss of every next word, `[seeds, documents, n]` of ids `[documents, n + 1]`."""

    @jax.jit
    def some(params, ids):
        logits = apply(params, ids[:, :-1]).logits
        chosen = jnp.take_along_axis(logits, ids[:, 1:, None], axis=-1)[..., 0]
        return jax.nn.logsumexp(logits, axis=-1) - chosen

    return over_documents(some, params, ids)


def over_documents(function: Callable, params: Any, ids: np.ndarray) -> Any:
    """A function of one seed's parameters and a few documents, `[seeds, documents, ...]` of all."""
    seeds = len(jax.tree.leaves(params)[0])
    found = []
    for seed in range(seeds):
        own = jax.tree.map(lambda x, seed=seed: jnp.asarray(x[seed]), params)
        parts = [function(own, ids[at : at + CHUNK]) for at in range(0, len(ids), CHUNK)]
        found.append(jax.tree.map(lambda *x: np.concatenate(x), *jax.device_get(parts)))
    return jax.tree.map(lambda *x: np.stack(x), *found)


Losses = dict[str, dict[int, np.ndarray]]  # of an arm, at L: [seeds, documents, L]


def names(sizes: Sizes) -> tuple[str, ...]:
    """What is compared: each scaling of the RoPE model, and the other models."""
    return (*sizes.scalings, *sizes.models[1:])


def extrapolated(models: dict[str, Any], data: Data, sizes: Sizes) -> Losses:
    """Without training beyond T: losses of the last L words of each text, for every L."""
    found: Losses = {name: {} for name in names(sizes)}
    for name, L in itertools.product(found, sizes.tests):
        params, ids = models.get(name, models["rope"]), data.held_out[:, -L - 1 :]
        found[name][L] = losses_of(model(name, sizes, length=L), params, ids)
    return found


def by_length(losses: Losses, windows: dict[str, np.ndarray], sizes: Sizes) -> dict[str, Any]:
    """Loss of the last T words of the texts, the same ones whatever length is read."""
    over = {
        name: {str(L): own - windows.get(name, windows["rope"])[..., -L:] for L, own in of.items()}
        for name, of in losses.items()
    }
    return {
        name: {L: {"over_window": summary(own[..., -sizes.length :])} for L, own in of.items()}
        for name, of in over.items()
    }


def by_position(losses: Losses, windows: dict[str, np.ndarray], sizes: Sizes) -> dict[str, Any]:
    """Loss over that in a window, by position in the longest texts, and its mean beyond T."""
    L, rows = max(sizes.tests), {}
    for name, lengths in losses.items():
        over = lengths[L] - windows.get(name, windows["rope"])
        rows[name] = {
            "over_window": in_blocks(over).mean(axis=0),
            "beyond": summary(over[..., sizes.length :]),
        }
    return {"position": np.arange(BLOCK, L + 1, BLOCK), "arms": rows}


def over_no_scaling(arms: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Mean loss beyond T with a scaling less that without, by the same models."""
    none = np.array(arms["none"]["beyond"]["seeds"])
    found = {}
    for name in sizes.scalings[1:]:
        gain = np.array(arms[name]["beyond"]["seeds"]) - none
        found[name] = {"mean": gain.mean(), "half": interval(list(gain)), "seeds": gain}
    return found


def sliding(apply, params: Any, data: Data, sizes: Sizes) -> np.ndarray:
    """Every word from the last T − BLOCK + 1 to T words before it, the first T as they come.

    What reading on has to beat: it needs no more than was trained.
    """
    T, L = sizes.length, max(sizes.tests)
    starts = range(0, L - T + 1, BLOCK)
    ids = np.stack([data.held_out[:, s : s + T + 1] for s in starts])
    losses = losses_of(apply, params, ids.reshape(-1, T + 1))
    losses = losses.reshape(losses.shape[0], len(starts), -1, T)
    rest = np.moveaxis(losses[:, 1:, :, -BLOCK:], 1, 2)
    return np.concatenate([losses[:, 0], rest.reshape(*rest.shape[:2], -1)], axis=-1)


def after_tuning(rope: Any, data: Data, sizes: Sizes) -> dict[str, Any]:
    """A short training at the longer length, against as many more steps at T."""
    L, last = sizes.tune_length, slice(-sizes.length, None)
    tune = partial(fine_tuned, before=rope, data=data, sizes=sizes)
    tuned = {name: tune(name) for name in sizes.tuned}
    window = sliding(model("rope", sizes), tune("short"), data, sizes)[..., last]
    rows: dict[str, Any] = {}
    for name, params in tuned.items():
        losses = losses_of(model(name, sizes, length=L), params, data.held_out[:, -L - 1 :])[
            ..., last
        ]
        rows[name] = {"over_window": summary(losses - window)}
    return rows


def attention(models: dict[str, Any], data: Data, sizes: Sizes) -> dict[str, Any]:
    """Mean distance that attention goes, by layer and block of positions."""
    L, found = max(sizes.tests), {}
    for name in names(sizes):
        apply = model(name, sizes, length=L)

        @jax.jit
        def distance(params, ids, apply=apply):
            weights = apply(params, ids, trace=True).transformer.weights
            mask = jnp.tri(ids.shape[-1], dtype=bool)
            seen = spectral.attention_profile(weights, mask=mask).distance
            return jnp.mean(jnp.swapaxes(seen, 0, 1), axis=2)  # [documents, layers, n]

        params = models.get(name, models["rope"])
        seen = over_documents(distance, params, data.held_out[: sizes.traced, -L - 1 : -1])
        found[name] = {
            "distance": [
                {"curve": in_blocks(own).mean(axis=0), "end": summary(own[..., -BLOCK:])}
                for own in np.moveaxis(seen, 2, 0)
            ]
        }
    return found


def in_blocks(values: np.ndarray) -> np.ndarray:
    """Means over documents and blocks of positions, `[seeds, blocks]`."""
    return values.reshape(*values.shape[:-1], -1, BLOCK).mean(axis=(1, -1))


def summary(values: np.ndarray) -> dict[str, Any]:
    """The mean of `[seeds, documents, n]`; half its 95 % interval over seeds, and documents."""
    seeds, documents = values.mean(axis=(1, 2)), values.mean(axis=(0, 2))
    return {
        "mean": values.mean(),
        "half": interval(list(seeds)),
        "half_documents": interval(list(documents)),
        "seeds": seeds,
    }


LOOKS = {
    "none": ("no scaling", "C3-"), "linear": ("linear", "C1-"), "ntk": ("NTK-aware", "C0-"),
    "dynamic": ("dynamic NTK, s = L/T", "C9:"),
    "yarn": ("YaRN", "C2-"), "parts": ("NTK by parts", "C2:"),
    "slow": ("slow frequencies / s", "C6-"), "fast": ("fast frequencies / s", "C6:"),
    "one": ("one frequency / s", "C6--"), "alibi": ("ALiBi", "k-"), "nope": ("NoPE", "C7-"),
}  # fmt: skip


def draw_losses(run: Run, result: dict[str, Any]) -> None:
    """Over the model's own sliding window, so that what is harder in a text drops out."""
    title = "Trained on 64 words and read on: loss over that of a sliding window of 64"
    figure, axes = common.new_figure(title, columns=2, width=9, height=4.4)
    place, tests = result["positions"]["position"], result["sizes"]["tests"]
    for name, (label, style) in LOOKS.items():
        if name in result["positions"]["arms"]:
            over = result["positions"]["arms"][name]["over_window"]
            axes[0, 0].plot(place, over, style, label=label, lw=1.5)
        if name in result["lengths"]:
            rows = [result["lengths"][name][str(L)]["over_window"] for L in tests]
            half = [row["half"] for row in rows]
            axes[0, 1].errorbar(tests, [row["mean"] for row in rows], half, fmt=style, capsize=2)
        if name in result["fine_tuned"]:
            mean = result["fine_tuned"][name]["over_window"]["mean"]
            axes[0, 1].plot(result["sizes"]["tune_length"], mean, style.rstrip("-:") + "D", mfc="w")
    axes[0, 0].set(title="by position", xlabel="position", ylabel="loss over the window, nats")
    axes[0, 1].set(title="of the last 64 words (◇ fine-tuned)", xlabel="words read")
    common.log_ticks(axes[0, 1], tests)
    for axis in axes[0]:
        axis.axhline(0, color=GREY, lw=0.8, ls=":")
    figure.legend(loc="outside lower center", ncols=5, fontsize=9)
    common.save_figure(run, "rope_scaling", figure)


if __name__ == "__main__":
    common.main(experiment, "rope_scaling")
