"""Bounds of arguments: the numbers next to a bound, one of which is allowed and one refused."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import jaxpe
from experiments.li2025.growth import exponent
from jaxpe import data, encodings, geometry, ntk, spectral, theory, training
from jaxpe.data.tokens.vocabulary import refuse_undivided
from jaxpe.encodings.scalings import check_scaling
from jaxpe.geometry.checks import check_confidence
from jaxpe.plans.scaling import (
    DynamicScaling,
    LinearScaling,
    LongRopeScaling,
    NtkScaling,
    YarnScaling,
)
from jaxpe.report.numbers import percent, visible
from jaxpe.theory.divergences import kl_ratio
from jaxpe.training.config import check_config
from tests.nn.models import config
from tests.unchecked import unchecked

LEAST = math.ulp(0.0)
BELOW_1, ABOVE_1 = math.nextafter(1, 0), math.nextafter(1, 2)
RNG = np.random.default_rng(0)
ZEROS = np.zeros((4, 4))
KEY = jax.random.key(0)
ROPE = jaxpe.rope(head_dim=4)
Q = np.ones((4, 2, 4))
PLACES = np.arange(4, dtype=np.int32)
WEIGHTS = np.full((2, 3, 3), 1 / 3)
POINTS = jaxpe.euclidean_distances(RNG.standard_normal((5, 2)))


class Bound(NamedTuple):
    """A function of one argument, numbers that it allows, and numbers that it refuses."""

    call: Callable[[Any], Any]
    allowed: tuple[Any, ...]
    refused: tuple[Any, ...]


# Kinds of ranges: numbers at both sides of each of their ends.
POSITIVE = ((LEAST, 1e30), (0.0, -LEAST, math.nan))
POSITIVE_FINITE = ((LEAST, 1e30), (0.0, math.inf, math.nan))
FROM_0 = ((0.0,), (-LEAST,))
FROM_0_FINITE = ((0.0, 1e30), (-LEAST, math.inf, math.nan))
OPEN_SHARE = ((LEAST, BELOW_1), (0.0, 1.0))
SHARE_BELOW_1 = ((0.0, BELOW_1), (-LEAST, 1.0))
SHARE_ABOVE_0 = ((LEAST, 1.0), (0.0, ABOVE_1))
PROBABILITY = ((0.0, 1.0), (-LEAST, ABOVE_1))


def whole(least: int, most: int | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Whole numbers at the ends of a range."""
    if most is None:
        return (least,), (least - 1,)
    return (least, most), (least - 1, most + 1)


def of(name: str, call: Callable[..., Any], **ranges: Any) -> dict[str, Bound]:
    """A row for each argument with a range."""
    return {
        f"{name} {argument}": Bound(lambda v, argument=argument: call(**{argument: v}), *numbers)
        for argument, numbers in ranges.items()
    }


def counts(documents: int = 20, folds: int = 4) -> geometry.PositionCounts:
    ids = np.random.default_rng(0).integers(0, 5, (documents, 3), dtype=np.int32)
    return geometry.count_tokens(ids, vocab_size=5, folds=folds)


def labelled() -> data.LabelledTokens:
    ids = np.arange(40).reshape(10, 4)
    labels = np.arange(10, dtype=np.int32) % 2
    return data.LabelledTokens(data.tokens_from_ids(ids), labels, ("a", "b"), "ids")


def dropped(rate: float) -> jax.Array:
    options = {"q_positions": PLACES, "k_positions": PLACES, "dropout_key": KEY}
    return jaxpe.attend(ROPE, (), Q, Q, Q, dropout_rate=rate, **options)


def scaled(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **options: check_scaling(make(**options))


def trained(**changes: Any) -> None:
    check_config(training.TrainConfig(**changes))


BOUNDS: dict[str, Bound] = {
    **of(
        "TransformerConfig",
        lambda **changes: config(**{"num_heads": 1, **changes}),
        **dict.fromkeys(
            (
                *("norm_epsilon", "attention_scale", "logit_scale", "attention_cap"),
                *("logit_cap", "embedding_factor"),
            ),
            POSITIVE_FINITE,
        ),
        **dict.fromkeys(("init_scale", "embedding_scale"), FROM_0_FINITE),
        **dict.fromkeys(
            ("vocab_size", "dim", "num_layers", "num_heads", "head_dim", "num_kv_heads"), whole(1)
        ),
        **dict.fromkeys(
            ("dropout", "attention_dropout"), ((0.0, 0.999), (-LEAST, math.nextafter(0.999, 1)))
        ),
    ),
    **of(
        "TrainConfig",
        trained,
        **dict.fromkeys(("learning_rate", "clip"), ((LEAST,), (0.0, math.inf, math.nan))),
        **dict.fromkeys(("warmup", "held_out"), SHARE_BELOW_1),
        **dict.fromkeys(
            ("batch_size", "steps", "evaluate_every", "evaluate_rows", "devices"),
            whole(1, 2**31 - 1),
        ),
        **dict.fromkeys(("length", "keep", "max_vocab"), whole(2, 2**31 - 1)),
        **dict.fromkeys(("seed", "init_seed"), whole(0, 2**32 - 1)),
        weight_decay=FROM_0,
        average=OPEN_SHARE,
        accumulate=whole(1, 32),
    ),
    **of(
        "TrainConfig mlm",
        lambda mask_rate: trained(task="mlm", mask_rate=mask_rate),
        mask_rate=SHARE_BELOW_1,
    ),
    **of(
        "learning_rate_schedule",
        lambda **options: training.learning_rate_schedule(
            **{"peak": 1.0, "steps": 10, "warmup": 2, **options}
        ),
        warmup=whole(0, 9),
        peak=((LEAST,), (0.0,)),
    ),
    **of("parameter_average", training.parameter_average, decay=OPEN_SHARE),
    **of(
        "mask_tokens",
        lambda rate=0.5, mask_id=0: training.mask_tokens(
            KEY, np.zeros((2, 3), np.int32), vocab_size=7, mask_id=mask_id, rate=rate
        ),
        rate=PROBABILITY,
        mask_id=whole(0, 6),
    ),
    **of(
        "batches",
        lambda batch_size=1, epochs=1: training.batches(
            {"ids": np.zeros((3, 2), np.int32)}, batch_size=batch_size, seed=0, epochs=epochs
        ),
        batch_size=whole(1, 3),
        epochs=whole(1),
    ),
    **of(
        "positional_distributions",
        lambda smoothing: geometry.positional_distributions(np.eye(3), smoothing=smoothing),
        smoothing=FROM_0_FINITE,
    ),
    **of("position_bins", lambda bins: geometry.position_bins(5, bins=bins), bins=whole(1, 5)),
    **of(
        "rank_above_null",
        lambda level: geometry.rank_above_null(np.eye(2), np.zeros((9, 2, 2)), level=level),
        level=((0.0, 0.9), (-LEAST, 0.91, 1.0)),
    ),
    **of(
        "disjoint_geometries",
        lambda folds: geometry.disjoint_geometries(counts(folds=folds), key=KEY, splits=1),
        folds=whole(4),
    ),
    **of("confidence", check_confidence, confidence=OPEN_SHARE),
    **of(
        "predict_mse",
        lambda ridge: ntk.predict_mse(np.eye(2), np.ones(2), ridge=ridge, trace_axes=()),
        ridge=FROM_0,
    ),
    **of(
        "prediction",
        lambda t: ntk.predict_mse(np.eye(2), np.ones(2), trace_axes=())(t, np.zeros(2)),
        t=FROM_0,
    ),
    **of(
        "max_learning_rate",
        lambda momentum: ntk.max_learning_rate(np.eye(2), momentum=momentum),
        momentum=SHARE_BELOW_1,
    ),
    **of(
        "lanczos_eigenvalues",
        lambda num=2, steps=3: ntk.lanczos_eigenvalues(
            lambda v: 2 * v, np.ones(4), num=num, steps=steps, key=KEY
        ),
        num=whole(1, 3),
        steps=whole(2, 4),
    ),
    **of(
        "hold_out",
        lambda fraction: data.hold_out(labelled(), fraction=fraction),
        fraction=((0.1, 0.9), (0.0, 1.0, math.nan)),
    ),
    **of(
        "zipf_drift",
        lambda rank: data.zipf_drift(documents=10, length=6, vocab_size=500, rank=rank),
        rank=whole(2, 5),
    ),
    **of(
        "remark_8",
        lambda width=1, rank=1: theory.remark_8(POINTS, width=width, ranks=(rank,)),
        width=whole(1),
        rank=whole(1, 5),
    ),
    **of(
        "remark_7",
        lambda dim: theory.remark_7(POINTS.values**2, dim=dim),
        dim=((2, 4), (0, 1, 3, 5, 6)),
    ),
    **of(
        "monotonicity_test",
        lambda level=0.05, least=0.25: theory.monotonicity_test(counts(), level=level, least=least),
        level=((1e-9, math.nextafter(0.5, 0)), (0.0, 0.5)),
        least=SHARE_ABOVE_0,
    ),
    **of(
        "explained_by_chance",
        lambda level=0.05, orders=1: theory.explained_by_chance(
            ZEROS, ZEROS, key=KEY, level=level, orders=orders
        ),
        level=OPEN_SHARE,
        orders=whole(1),
    ),
    **of(
        "inverse_frequencies",
        lambda dim=4, base=100.0: encodings.inverse_frequencies(dim, base=base),
        dim=((2, 4), (0, 1, 3)),
        base=((LEAST,), (0.0, -1.0)),
    ),
    **of("LinearScaling", scaled(LinearScaling), factor=POSITIVE_FINITE),
    **of("NtkScaling", scaled(NtkScaling), factor=POSITIVE_FINITE),
    **of(
        "DynamicScaling",
        scaled(lambda factor=2.0, length=8: DynamicScaling(factor, length)),
        factor=POSITIVE_FINITE,
        length=whole(2),
    ),
    **of(
        "YarnScaling",
        scaled(lambda **options: YarnScaling(4.0, 8, **options)),
        beta_fast=((1.0, 2.0), (math.nextafter(1, 0), math.nan)),
        beta_slow=((32.0, 1.0), (math.nextafter(32, 33),)),
        attention_factor=POSITIVE_FINITE,
    ),
    **of("near_share", lambda window: spectral.near_share(WEIGHTS, window=window), window=whole(0)),
    **of("first_share", lambda keys: spectral.first_share(WEIGHTS, keys=keys), keys=whole(1, 3)),
    **of("attend", dropped, rate=SHARE_BELOW_1),
    **of(
        "positions",
        lambda position: encodings.sinusoidal_vectors(np.array([position], np.int64), dim=2),
        position=((-(2**31), 2**31 - 1), (-(2**31) - 1, 2**31)),
    ),
    **of("sinusoidal", lambda base: encodings.sinusoidal(dim=4, base=base), base=POSITIVE),
    **of(
        "deberta",
        lambda num_buckets: encodings.deberta(num_heads=2, head_dim=4, num_buckets=num_buckets),
        num_buckets=((4, 6), (2, 5)),
    ),
    **of("alibi", lambda slopes: encodings.alibi(num_heads=1, slopes=slopes), slopes=FROM_0),
    **of(
        "alibi that learns",
        lambda slopes: encodings.alibi(num_heads=1, slopes=slopes, learnable=True),
        slopes=((LEAST,), (0.0,)),
    ),
    **of(
        "position_temperature",
        lambda scale=0.1, period=2: encodings.position_temperature(scale=scale, period=period),
        scale=FROM_0,
        period=whole(1),
    ),
    **of(
        "log_position",
        lambda tau: encodings.log_position(dim=4, length=8, tau=tau),
        tau=((LEAST,), (0.0, math.nan)),
    ),
    **of(
        "low_rank",
        lambda rank: encodings.low_rank(length=5, dim=3, rank=rank),
        rank=whole(1, 3),
    ),
    **of(
        "rerope",
        lambda **options: encodings.rerope(ROPE, **{"window": 2, **options}),
        window=whole(1),
        leak=SHARE_BELOW_1,
    ),
    **of(
        "dual_chunk",
        lambda local: encodings.dual_chunk(ROPE, chunk=4, local=local),
        local=whole(0, 3),
    ),
    **of(
        "legendre_vectors",
        lambda s: encodings.legendre_vectors(PLACES, dim=2, length=4, position_map="log", s=s),
        s=((1e-3,), (0.0,)),
    ),
    **of(
        "wavelet_vectors",
        lambda order: encodings.wavelet_vectors(PLACES, dim=2, length=4, order=order),
        order=whole(1, 38),
    ),
    **of(
        "convert_rotary_layout",
        lambda num_heads: encodings.convert_rotary_layout(
            np.ones(8), num_heads=num_heads, source="interleaved", target="half_split"
        ),
        num_heads=((1, 4), (0, 3, 8)),
    ),
    **of(
        "refuse_undivided",
        lambda letters: refuse_undivided({"ab": 20, "a" * letters: 1}, "a text"),
        letters=((40,), (41,)),  # half of the text is in a run, and a letter more
    ),
    **of("sliding_window", encodings.sliding_window, size=whole(1)),
    **of("attention_chunks", encodings.attention_chunks, size=whole(1)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_next_to_a_bound(name):
    """Computed in shapes alone: what arguments are allowed is decided before."""
    call, allowed, refused = BOUNDS[name]
    with unchecked():
        for number in allowed:
            jax.eval_shape(lambda number=number: _arrays(call(number)))
        for number in refused:
            with pytest.raises(ValueError, match=r"\w"):
                call(number)


# Functions that change at a number: values at it, just below and just above.
SCALED = {"short_factor": (1.0, 1.0), "long_factor": (4.0, 4.0)}
LONGROPE = LongRopeScaling(**SCALED, original_max_position_embeddings=8)
DYNAMIC = DynamicScaling(2.0, 8)
ONE = np.ones((1, 1, 1))
THRESHOLDS: dict[str, tuple[Callable[[Any], Any], dict[Any, Any]]] = {
    "percent": (
        lambda share: percent(share).replace("\N{NO-BREAK SPACE}", " "),
        {
            **{0.0: "0 %", LEAST: "under 1 %", math.nextafter(0.01, 0): "under 1 %", 0.01: "1 %"},
            **{0.99: "99 %", math.nextafter(0.99, 1): "over 99 %", BELOW_1: "over 99 %"},
            1.0: "100 %",
        },
    ),
    "visible": (
        lambda length: visible("x" * length, limit=5),
        {0: "(empty)", 4: "xxxx", 5: "xxxxx", 6: "xxxxx…"},
    ),
    "exponent": (lambda value: exponent([1, 2], [value, value]), {LEAST: 0.0, 0.0: math.nan}),
    "attention_evenness": (
        lambda keys: spectral.attention_evenness(
            (np.arange(3) < keys).astype(float).reshape(1, 1, 3) / max(keys, 1),
            mask=np.arange(3) < keys,
        ).item(),
        {0: 0.0, 1: 0.0, 2: 1.0, 3: 1.0},
    ),
    "near_share": (
        lambda window: spectral.near_share(
            np.full((1, 1, 4), 0.25),
            window=window,
            q_positions=np.zeros(1),
            k_positions=np.arange(4),
        ).item(),
        {0: 0.25, 0.9: 0.25, 1: 0.5, 2: 0.75, 3: 1.0},
    ),
    "principal_angles": (
        lambda size: geometry.principal_angles(np.eye(2)[:, :1], size * np.eye(2)[:, :1]).item(),
        {0.0: math.pi / 2, 1e-300: 0.0, 1.0: 0.0},
    ),
    "kl_ratio": (
        lambda x: kl_ratio(x).item(),
        {-1e-300: math.nan, 0.0: 1.0, 1.0: 2.0, math.inf: math.inf, math.nan: math.nan},
    ),
    "LongRopeScaling": (
        lambda length: LONGROPE.frequencies(4, 100.0, length).inverse[0],
        {7: 1.0, 8: 1.0, 9: 0.25},
    ),
    "DynamicScaling": (
        lambda length: DYNAMIC.frequencies(4, 100.0, length).inverse[1] < 0.1,
        {7: False, 8: False, 9: True},
    ),
    "sliding_window": (
        lambda size: (
            encodings.sliding_window(size=size)
            .mask((), ONE, np.ones((11, 1, 1)), np.array([5]), np.arange(11))
            .sum()
            .item()
        ),
        {1: 1, 2: 3, 3: 5},
    ),
    "attention_chunks": (
        lambda start: (
            encodings.attention_chunks(size=2)
            .mask((), ONE, np.ones((8, 1, 1)), np.array([start]), np.arange(-4, 4))
            .nonzero()[-1]
            .tolist()
        ),
        {-2: [2, 3], -1: [2, 3], 0: [4, 5], 1: [4, 5], 2: [6, 7]},
    ),
    "position_temperature": (
        lambda position: (
            encodings.position_temperature(scale=1.0, period=2)
            .query((), np.ones((1, 1, 1)), np.array([position]))
            .item()
        ),
        {-9: 1.0, 0: 1.0, 1: 1 + math.log(2), 2: 1 + math.log(2), 3: 1 + math.log(3)},
    ),
    "t5_buckets": (
        lambda offset: encodings.t5_buckets(
            np.array(offset), num_buckets=8, max_distance=8, bidirectional=True
        ).item(),
        {-9: 3, -8: 3, -2: 2, -1: 1, 0: 0, 0.5: 0, 1: 5, 2: 6, 8: 7, 9: 7},
    ),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_values_next_to_a_threshold(name):
    function, values = THRESHOLDS[name]
    found = {number: function(number) for number in values}
    for number, expected in values.items():
        if isinstance(expected, float):
            np.testing.assert_allclose(found[number], expected, rtol=1e-12, err_msg=str(number))
        else:
            assert found[number] == expected, number


def _arrays(result: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)]
