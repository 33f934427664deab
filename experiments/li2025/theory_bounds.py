"""Bounds of Li (2025, arXiv:2506.06398), Sections 4 to 6, evaluated on trained models.

Theirs: Lipschitz constants from norms of weights, capacity from norms of encodings, extrapolation
of ALiBi, wavelets and Legendre polynomials, each by an inequality. Ours: both sides, on models of
Section 7 (two layers, one head, ReLU, no norm, running sums) under seven encodings, with and
without a causal mask.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments.common import (
    Run,
    main,
    mean_sd,
)
from experiments.li2025.lipschitz import layer_maps, lipschitz_bounds
from jaxpe import encodings, nn, theory, training
from jaxpe.nn.transformer import Transformer
from jaxpe.spectral.norms import operator_norm, spectral_norm
from jaxpe.theory.audit import Audit
from jaxpe.training.losses import mean_squared_error

DIM, HIDDEN, LAYERS, T = 32, 64, 2, 16
SLOPE = 1.0 / T  # of ALiBi: m = c/T with c = 1
ROWS, TEST_ROWS, BATCH, RATE, SEEDS = 10_000, 1_000, 64, 2e-3, 3
STEPS, QUICK_STEPS = 1_000, 5
ITERATIONS = 200  # of the power method, at most
SCALES = (1.0, 10.0, 100.0)  # of what enters the first layer
LENGTHS = (T, 2 * T, 4 * T, 8 * T)
KEY = jax.random.key(4)

ENCODINGS: dict[str, Callable[[], encodings.Encoding]] = {
    "none": encodings.identity,
    "sinusoidal": lambda: encodings.sinusoidal(dim=DIM),
    "learned": lambda: encodings.learned(length=T, dim=DIM),
    "alibi": lambda: encodings.alibi(num_heads=1, slopes=SLOPE),
    "shaw": lambda: encodings.shaw(head_dim=DIM, max_distance=T),
    "wavelet": lambda: encodings.wavelet(dim=DIM, length=T),
    "legendre": lambda: encodings.legendre(dim=DIM, length=T),
}


class Trained(NamedTuple):
    """Models of one kind, all seeds: `apply(params, values)`, parameters `[seeds, ...]`."""

    apply: Callable[..., Any]
    graphdef: Any
    params: Any


def data(rows: int, *, seed: int, n: int = T) -> tuple[np.ndarray, np.ndarray]:
    """x_t ~ U(−1, 1) and their running sums, `[rows, n, 1]`."""
    values = np.random.default_rng(seed).uniform(-1, 1, (rows, n, 1)).astype(np.float32)
    return values, np.cumsum(values, axis=1)


def build(make: Callable[[], encodings.Encoding], causal: bool, key: jax.Array) -> nn.Regressor:
    config = nn.TransformerConfig(
        vocab_size=1,
        dim=DIM,
        num_layers=LAYERS,
        num_heads=1,
        hidden_dim=HIDDEN,
        activation="relu",
        norm="none",
        init_scale=0.7 * DIM**-0.5,
    )
    below, ends = jax.random.split(key)
    transformer = nn.Decoder if causal else nn.Encoder
    return nn.Regressor(
        transformer(config, encoding=make(), rngs=nnx.Rngs(below)),
        inputs=1,
        outputs=1,
        rngs=nnx.Rngs(ends),
    )


def train(
    make: Callable, causal: bool, *, steps: int, seeds: int = SEEDS, rows: Any = None,
    transform: optax.GradientTransformation | None = None,
) -> Trained:  # fmt: skip
    """Train all seeds at once, on running sums or other `rows`; `transform` follows Adam."""
    model = build(make, causal, jax.random.key(0))
    apply, _ = nn.functionalize(model)
    keys = jax.random.split(jax.random.key(1), seeds)
    start = jax.vmap(lambda key: nnx.split(build(make, causal, key), nnx.Param)[1])
    rate = optax.scale_by_learning_rate(optax.cosine_decay_schedule(RATE, steps))
    optimizer = optax.chain(optax.scale_by_adam(), transform or optax.identity(), rate)
    rows = data(ROWS, seed=0) if rows is None else rows
    params = _train(apply, jax.jit(start)(keys), keys, steps, rows, optimizer)
    return Trained(apply, nnx.split(model, nnx.Param)[0], params)


def _train(
    apply: Callable, params: Any, keys: jax.Array, steps: int, rows: Any, optimizer: Any
) -> Any:
    def loss(params, batch, key):
        return mean_squared_error(apply(params, batch["x"]).logits, batch["y"]), {}

    step = jax.vmap(training.step_function(loss, optimizer))
    states = jax.vmap(lambda p, key: training.init_state(p, optimizer, key=key))(params, keys)
    chosen = np.random.default_rng(2).integers(0, len(rows[0]), (steps, len(keys), BATCH))

    @jax.jit
    def run(states, x, y, chosen):
        def one(states, rows):
            states, metrics = step(states, {"x": x[rows], "y": y[rows]})
            return states, metrics["loss"]

        return jax.lax.scan(one, states, chosen)

    states, _ = run(states, *rows, chosen)
    return states.params


def losses(trained: Trained) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared error of every row, `[seeds, rows]`: those of training, and others."""
    sides = (data(ROWS, seed=0), data(TEST_ROWS, seed=1))
    x, y = (np.concatenate(parts) for parts in zip(*sides, strict=True))

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None, None))
    def of(params, x, y):
        return jnp.mean((trained.apply(params, x).logits - y) ** 2, axis=(1, 2))

    found = np.asarray(of(trained.params, x, y))
    return found[:, :ROWS], found[:, ROWS:]


def experiment(run: Run) -> dict[str, Any]:
    steps = QUICK_STEPS if run.quick else STEPS
    names = ["none", "alibi", "shaw"] if run.quick else list(ENCODINGS)
    models, capacity, kept = {}, [], {}
    for name in names:
        for causal in (True,) if run.quick else (False, True):
            label = f"{name}, {'causal' if causal else 'bidirectional'}"
            trained = train(ENCODINGS[name], causal, steps=steps)
            models[label], sides = of_model(name, trained, sequences=2 if run.quick else 4)
            capacity.append(sides)
            kept[name, causal] = trained
            print(label, models[label]["statement"]["instead"], flush=True)
    return {
        "models": models,
        "rademacher": of_capacity(capacity),
        "alibi_lengths": by_length(
            kept["alibi", True], lengths=LENGTHS[:2] if run.quick else LENGTHS
        ),
        "equation_9": of_equation_9(kept["alibi", True]),
        "norms": of_norms(kept),
        "wavelets": {str(n): at_multiples(wavelets(n), n) for n in (16, 64, 256)},
        "legendre": {str(s): plain(legendre(64 / s)) for s in (1, 2, 4, 5, 8, 16)},
    }


class Looked(NamedTuple):
    """At some sequences of one model: `[scales, sequences, ...]` and bounds for each scale.

    Layers are attention 1, feed-forward 1, attention 2, ...
    """

    layers: jax.Array  # derivatives of the layers
    whole: jax.Array
    own: jax.Array  # bounds of the layers at the norms that enter them
    ball: jax.Array  # bounds of the layers from the norms that enter the first
    weights: jax.Array  # with norms of 0 in every layer: what norms of weights give
    radius: jax.Array
    ends: jax.Array  # ‖W_in‖, ‖W_out‖


def look(name: str, model: nn.Regressor, x: jax.Array, keys: jax.Array) -> Looked:
    """Values of the power method and bounds at sequences `[scales, sequences, n, dim]`."""
    below, n = model.transformer, x.shape[2]
    bound = partial(lipschitz_bounds, n=n, relative=table_norms(below) if name == "shaw" else None)

    def measure(f, x):
        def one(x, key):
            return operator_norm(f, x, key=key, max_iterations=ITERATIONS).value

        return jax.vmap(jax.vmap(one))(x, keys)

    def layer(x, block):
        one = alone(below, block)
        radii = jnp.append(jnp.max(jnp.linalg.norm(x, axis=3), axis=(1, 2)), 0.0)
        bounds = jax.vmap(lambda radius: bound(one, radius=radius))(radii)
        found = []
        for f in layer_maps(one, n=n):
            found.append(measure(f, x))
            x = jax.vmap(jax.vmap(f))(x)
        sides = jnp.concatenate([bounds.attention, bounds.feed_forward], axis=1)
        return x, (jnp.stack(found, axis=-1), sides, radii[:-1])

    def through(x):
        def step(x, block):
            for f in layer_maps(alone(below, block), n=n):
                x = f(x)
            return x, None

        return jax.lax.scan(step, x, below.layers)[0]

    _, (norms, sides, radii) = jax.lax.scan(layer, x, below.layers)
    ball = jax.vmap(lambda radius: bound(below, radius=radius))(radii[0])
    ends = jnp.stack([spectral_norm(w.kernel.get_value()) for w in (model.input, model.output)])
    return Looked(
        layers=_flat(norms),
        whole=measure(through, x),
        own=_flat(sides[:, :-1]),
        ball=jnp.stack([ball.attention, ball.feed_forward], axis=2).reshape(len(SCALES), -1),
        weights=_flat(sides[:, -1]),
        radius=radii[0],
        ends=ends,
    )


def _flat(x: jax.Array) -> jax.Array:
    """`[layers, ..., 2]`, attention and feed-forward of each, as `[..., 2 layers]`."""
    return jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)


def alone(transformer: Transformer, block: Any) -> Transformer:
    """The transformer with one of its blocks, so that one program serves all."""
    one = nnx.clone(transformer)
    one.config = dataclasses.replace(one.config, num_layers=1)
    one.layers = jax.tree.map(lambda x: x[None], block)
    return one


def table_norms(transformer: Transformer) -> tuple[jax.Array, jax.Array]:
    """The largest rows of Shaw's tables."""
    tables = transformer.encoding_params.get_value()
    key, value = (
        jnp.max(jnp.linalg.norm(tables[f"{part}_table"], axis=1)) for part in ("key", "value")
    )
    return key, value


def of_model(name: str, trained: Trained, *, sequences: int) -> tuple[dict, dict]:
    """Both sides for every seed, and what Eq. (8) needs."""
    values, _ = data(sequences, seed=1)
    scales = np.asarray(SCALES, np.float32)[:, None, None, None]
    keys = jax.random.split(jax.random.key(3), (len(SCALES), sequences))

    @jax.jit
    @jax.vmap
    def all_seeds(params):
        model = nnx.merge(trained.graphdef, params)
        below = model.transformer
        x = model.input(jnp.asarray(values))
        nobody = jnp.zeros(x.shape[:2], jnp.int32)
        x = below.embed(nobody, vectors=x, positions=jnp.arange(T, dtype=jnp.int32))
        return look(name, model, jnp.asarray(scales) * x[None], keys)

    found = jax.tree.map(np.asarray, all_seeds(trained.params))
    audits = [
        theory.section_4_lipschitz(
            found.layers[seed],
            found.weights[seed],
            np.broadcast_to(found.own[seed][:, None], found.layers[seed].shape),
            whole=found.whole[seed],
        )
        for seed in range(SEEDS)
    ]
    train_loss, test_loss = losses(trained)
    sides = {
        "train": train_loss.mean(1),
        "test": test_loss.mean(1),
        "lipschitz": found.ball[:, 0].prod(1) * found.ends[:, 1],
        "radius": T**0.5 * found.radius[:, 0],
        "largest": max(train_loss.max(), test_loss.max()),
    }
    at_own = found.layers.max(axis=2)[:, 0]  # seeds, layers
    above = found.own[:, 0] / at_own
    whole = found.whole.max(2)  # seeds, scales
    whole_above = found.ball[:, 0].prod(1) / whole[:, 0]
    row = {
        "statement": {
            part: {
                k: all(bool(getattr(a, part)[k].holds) for a in audits)
                for k in getattr(audits[0], part)
            }
            for part in ("conclusions", "instead")
        },
        "test_mse": mean_sd(sides["test"]),
        "measured": at_own.mean(0),
        "bound_at_own_norms": found.own[:, 0].mean(0),
        "whole": mean_sd(whole[:, 0]),
        "whole_bound": mean_sd(found.ball[:, 0].prod(1)),
        "bound_over_measured": {"least": above.min(0), "largest": above.max(0)},
        "whole_bound_over_measured": {"least": whole_above.min(), "largest": whole_above.max()},
    }
    return row, sides


def of_capacity(capacity: list[dict]) -> dict[str, Any]:
    """Eq. (8) for all models together."""
    joined = {k: np.concatenate([c[k] for c in capacity]) for k in capacity[0] if k != "largest"}
    largest = float(max(c["largest"] for c in capacity))
    _, y = data(ROWS, seed=0)
    return plain(
        theory.section_4_rademacher(
            joined["train"],
            joined["test"],
            joined["lipschitz"],
            joined["radius"],
            worst_loss=largest,
            samples=ROWS,
            largest_loss=largest,  # observed: the theorem wants one that is known
            loss_lipschitz=2 * (largest / T) ** 0.5,
            trivial_loss=float(np.mean(y**2)),
        )
    )


def by_length(trained: Trained, *, lengths: tuple[int, ...]) -> dict[str, Any]:
    """The first attention layer with and without its bias, worst of sequences, by seed."""
    found = [jax.device_get(first_layer(trained, n)) for n in lengths]
    sides = (np.stack(side, axis=-1) for side in zip(*found, strict=True))
    audit = theory.section_4_alibi(*sides, lengths=np.asarray(lengths, np.float32), slope=SLOPE)
    return plain(audit)


def first_layer(trained: Trained, n: int) -> tuple[jax.Array, ...]:
    """Its norm with the bias and without, and its bound, by seed."""
    values = jnp.asarray(data(8, seed=5, n=n)[0])

    @jax.jit
    @jax.vmap
    def both(params):
        model = nnx.merge(trained.graphdef, params)
        below = model.transformer
        x = model.input(values)
        radius = jnp.max(jnp.linalg.norm(x, axis=2))
        bound = lipschitz_bounds(below, n=n, radius=radius).attention[0]

        def measured(slope, x):
            one = nnx.clone(below)
            one.encoding = encodings.alibi(num_heads=1, slopes=slope)
            return operator_norm(layer_maps(one, n=n)[0], x, key=KEY).value

        slopes = jnp.asarray([SLOPE, 0.0], x.dtype)
        found = jax.vmap(jax.vmap(measured, (None, 0)), (0, None))(slopes, x)
        return (*jnp.max(found, axis=1), bound)

    return both(trained.params)


def of_equation_9(trained: Trained) -> dict[str, Any]:
    """Rows of attention at the end of sequences of 2T, 4T and 8T, by layer, all seeds."""
    n = max(LENGTHS)
    values = jnp.asarray(data(16, seed=6, n=n)[0])
    traced = jax.jit(
        jax.vmap(lambda params: trained.apply(params, values, trace=True).transformer.logits)
    )
    logits = np.asarray(traced(trained.params), np.float64)  # seeds, layers, rows, 1, n, n
    result = {}
    audit = jax.jit(partial(theory.equation_9, slope=SLOPE, length=T))
    for length in LENGTHS[1:]:
        distances = np.arange(length - 1, -1, -1.0)
        for layer in range(LAYERS):
            rows = logits[:, layer, :, 0, length - 1, :length].reshape(-1, length)
            found = audit(
                jnp.asarray(rows + SLOPE * distances), np.broadcast_to(distances, rows.shape)
            )
            result[f"{length}, layer {layer + 1}"] = plain(found)
    return result


def of_norms(kept: dict[tuple[str, bool], Trained]) -> dict[str, Any]:
    """Section 4.2 for the tables of the first seeds, random ones where they were not trained."""
    x, q = np.random.default_rng(7).standard_normal((2, 64, DIM))
    tables: dict[str, Any] = {"learned": {"table": x}, "shaw": {"key_table": q}}
    for name in tables:
        if (name, True) in kept:
            params = kept[name, True].params
            found = params["transformer"]["encoding_params"].get_value()
            tables[name] = {k: np.asarray(v[0]) for k, v in found.items()}
    sinusoids = encodings.sinusoidal_vectors(jnp.arange(8 * T), dim=DIM)
    table, keys = tables["learned"]["table"], tables["shaw"]["key_table"]
    return plain(theory.section_4_norms(sinusoids, x, table, q, keys))


def wavelets(length: int) -> Audit:
    beyond = np.arange(length + 1, 8 * length + 1)
    return theory.section_6_wavelet(beyond, dim=64, length=length)


def at_multiples(audit: Audit, length: int) -> dict[str, Any]:
    """An audit as numbers, with the differences at multiples of T."""
    difference = np.asarray(audit.measured["difference"])
    return plain(audit) | {
        "at_multiples": {str(k): difference[(k - 1) * length - 1] for k in range(2, 9)}
    }


def legendre(s: float) -> Audit:
    return theory.section_6_legendre(jnp.arange(65, 8 * 64), dim=64, length=64, s=s)


def plain(audit: Audit) -> dict[str, Any]:
    """An audit as numbers; long curves by their first, largest and last."""

    def short(value):
        value = np.asarray(value, float)
        if value.size <= 64:
            return value
        flat = value.ravel()
        return {"first": flat[0], "mean": flat.mean(), "largest": flat.max(), "last": flat[-1]}

    parts = {
        part: {
            k: {"lhs": float(c.lhs), "rhs": float(c.rhs), "holds": bool(c.holds)}
            for k, c in getattr(audit, part).items()
        }
        for part in ("hypotheses", "conclusions", "instead")
    }
    return parts | {"measured": {k: short(v) for k, v in audit.measured.items()}}


if __name__ == "__main__":
    main(experiment, "theory_bounds")
