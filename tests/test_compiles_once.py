"""No public function compiles anything at its second call with arrays of the same shapes.

Eager calls, as a docstring has them: once for the shapes, and once more with other values. A
program found in the cache on disk counts as compiled, too. Functions and encodings that a caller
passes are the same objects in both calls, as in a script that defines them once.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxpe
from jaxpe import encodings, geometry, nn, ntk, spectral, theory, training
from jaxpe.encodings.base import bind_context
from jaxpe.theory import PositionGradients
from tests.cases import CASES, constructors
from tests.compilation import compilations
from tests.nn import models

N, VOCAB, HEADS, WIDTH = 5, 7, 2, 4
SIZES = encodings.EncodingSizes(dim=8, num_heads=HEADS, head_dim=WIDTH, length=8)
KEY = jax.random.key(0)
ROPE = encodings.rope(head_dim=WIDTH)
ALIBI = encodings.alibi(num_heads=HEADS)
LINE = np.arange(N, dtype=np.int32)


def counts(rng, **options):
    ids = rng.integers(0, VOCAB, (40, N), dtype=np.int32)
    return geometry.count_tokens(ids, vocab_size=VOCAB, **options)


def normal(rng, *shape):
    return rng.standard_normal(shape)


def symmetric(rng):
    A = normal(rng, N, N)
    return A @ A.T + N * np.eye(N)


def distances(rng):
    return np.asarray(geometry.euclidean_distances(normal(rng, N, 3)).values)


def mu(rng):
    return rng.dirichlet(np.full(VOCAB, 5.0), size=N)


def heads(rng, count=HEADS):
    return normal(rng, N, count, WIDTH)


def logits(rng):
    return normal(rng, HEADS, N, N)


def weights(rng):
    return np.asarray(jax.nn.softmax(logits(rng)))


# Functions of a caller, defined once.


def network(params, x):
    return jnp.tanh(x @ params["w"]) @ params["v"]


def _network_args(rng):
    params = {"w": jnp.asarray(normal(rng, 3, 4)), "v": jnp.asarray(normal(rng, 4, 2))}
    return normal(rng, 6, 3), params


def one_row(P, tokens):
    x = tokens[:, None] + P
    return (x @ x.T)[None]


def attention(P, tokens):
    return one_row(P, tokens), jax.nn.softmax(one_row(P, tokens))


def shifted_loss(P, shift, tokens):
    x = tokens[:, None] + P
    return jnp.sum((jax.nn.softmax(one_row(P, tokens) + shift) @ x) ** 2)


def velocity(P):
    return -P


def score(gates):
    return jnp.sum(gates * jnp.arange(4.0).reshape(2, 2))


def error(delta, d):
    return (delta - d) ** 2


OPERATOR = np.random.default_rng(0).standard_normal((N, N))


def apply_operator(x):
    return jnp.matmul(OPERATOR + OPERATOR.T, x)


def running_sums(ids):
    return jnp.cumsum(ids.astype(float))[:, None]


def swap_tokens(tokens, order):
    return tokens[order]


ADAM = optax.adam(0.1)


def train_loss(params, batch, key):
    out = batch["x"] @ params["w"]
    return training.MeanMetric(jnp.sum((out - 1) ** 2), jnp.asarray(6.0)), {}


STEP, PLAIN_STEP = (f(train_loss, ADAM) for f in (training.train_step, training.step_function))


def state(rng):
    return training.init_state({"w": jnp.asarray(normal(rng, 3))}, ADAM, key=KEY)


def batch(rng):
    return {"x": normal(rng, 6, 3)}


def position_gradients(rng):
    shapes = ((HEADS, N, N), (HEADS, N, N), (N, 3), (N, 3), (N, 3))
    return PositionGradients(*(jnp.asarray(normal(rng, *shape)) for shape in shapes))


def projections(rng, count, dim=3):
    return [normal(rng, dim, HEADS, WIDTH) for _ in range(count)]


def reference(rng):
    ids = rng.integers(0, 5, (40, N), dtype=np.int32)
    drawn = {"key": KEY, "folds": 4, "splits": 2, "nulls": 2}
    geometry = jaxpe.position_geometry(ids, vocab_size=5, **drawn)
    return training.reference_geometry(jaxpe.count_tokens(ids, vocab_size=5), geometry)


@functools.cache
def model(kind, **changes):
    """Small models, built once."""
    config = models.config(**changes)
    of = nn.Decoder if kind in ("decoder", "lm") else nn.Encoder
    encoding = encodings.sinusoidal(dim=models.DIM) if of is nn.Encoder else ROPE
    below = of(config, encoding=encoding, rngs=nnx.Rngs(0))
    if kind == "lm":
        return nn.CausalLM(below, rngs=nnx.Rngs(1))
    if kind == "classifier":
        return nn.Classifier(below, num_classes=2, rngs=nnx.Rngs(1))
    return below


def token_ids(rng, *shape):
    return rng.integers(0, models.VOCAB, shape, dtype=np.int32)


@functools.cache
def function_of_positions():
    return nn.position_functions(model("classifier"), length=N)


@functools.cache
def maps_of_layers():
    return nn.layer_maps(model("encoder", norm="none"), n=N)


@functools.cache
def made_nope():
    sizes = {"vocab_size": 9, "dim": 4, "num_layers": 2, "num_heads": 1, "length": N}
    return nn.nope_decoder(**sizes, key=KEY, dtype=jnp.float64, param_dtype=jnp.float64)


class Logits(NamedTuple):
    logits: jax.Array


def of_first_token(params, ids, **options):
    return Logits(params[ids[:, 0]])


def of_each_token(params, ids, **options):
    return Logits(params[ids])


def of_each_answer(params, ids, answer, **options):
    return Logits(params[answer])


def at_places(params, ids, places, **options):
    return jnp.take_along_axis(params[ids], places[..., None], axis=1)


LOSSES = {
    "causal_lm": training.causal_lm(of_each_token),
    "classification": training.classification(of_first_token),
    "masked_lm": training.masked_lm(at_places, vocab_size=VOCAB, mask_id=1),
    "regression": training.regression(lambda params, ids, **options: Logits(params[ids[:, :1], 0])),
    "translation": training.translation(of_each_answer, bos_id=1),
}


def task(name):
    def call(rng):
        ids = rng.integers(0, VOCAB, (6, N), dtype=np.int32)
        rows = {"ids": ids, "mask": np.ones_like(ids, bool), "labels": ids[:, 1]}
        if name == "regression":
            rows["labels"] = normal(rng, 6)
        if name == "translation":
            rows["labels"] = ids
        return LOSSES[name](jnp.asarray(normal(rng, VOCAB, VOCAB)), rows, KEY)

    return call


@functools.cache
def task_of_sequences():
    return jaxpe.data.sequence_task("copy", vocabulary=5)


Call = Callable[[np.random.Generator], Any]

# Rows of the table make a new function in each call of these.
SPECTRAL: dict[str, Call] = {
    "ablate_heads": lambda rng: spectral.ablate_heads(score, layers=2, heads=2),
    "head_gates": lambda rng: spectral.head_gates([(0, 1)], layers=2, heads=2),
}


def _costs(rng):
    x, params = _network_args(rng)
    return ntk.ntk_cost(network, x, None, params)


NTK: dict[str, Call] = {
    "lanczos_eigenvalues": lambda rng: ntk.lanczos_eigenvalues(
        apply_operator, normal(rng, N), num=2, key=jax.random.key(rng.integers(99))
    ),
    "ntk_cost": _costs,
    "solve_flow": lambda rng: ntk.solve_flow(velocity, normal(rng, 3, 2), np.array([0.5, 1.0])),
}


def _theorem_4(rng):
    given = normal(rng, N, 1), normal(rng, 9, N), normal(rng, N, 3), *projections(rng, 2)
    swaps = np.array([[0, 1], [2, 3]])
    return theory.theorem_4(_loss_of_row, *given, swaps=swaps, swap=swap_tokens)


def _loss_of_row(P, tokens):
    return jnp.sum((tokens[:, None] + P) ** 2 * jnp.arange(1.0, N + 1)[:, None])


def _low_rank_descent(rng):
    given = normal(rng, N, 2), normal(rng, 4, 2), distances(rng)
    return theory.low_rank_descent(*given, steps=3)


def _norms(rng):
    return theory.section_4_norms(
        normal(rng, N, 4),
        normal(rng, 6, 4),
        normal(rng, 5, 4),
        normal(rng, 3, 2),
        normal(rng, 9, 2),
    )


def _rademacher(rng):
    losses = (rng.random(3) for _ in range(4))
    numbers = {"samples": 100, "largest_loss": 1.0, "loss_lipschitz": 1.0, "trivial_loss": 0.5}
    return theory.section_4_rademacher(*losses, worst_loss=0.9, **numbers)


def _lemma(function, count, *between):
    def call(rng):
        arrays = [make(rng) for make in between]
        return function(position_gradients(rng), *arrays, *projections(rng, count))

    return call


def _means(rng):
    return normal(rng, N, 3)


def _lemma_16(rng):
    q, k, v = projections(rng, 3)
    output = normal(rng, HEADS, WIDTH, 3)
    given = position_gradients(rng), mu(rng), normal(rng, VOCAB, 3), q, k, v, output
    return theory.lemma_16(*given, gradient_bound=1.0)


def _gradients(rng):
    return theory.position_gradients(
        shifted_loss, attention, normal(rng, N, 1), normal(rng, 9, N), batch_size=4
    )


def _hidden(rng):
    return normal(rng, 2, N, 3), np.asarray(jax.nn.softmax(normal(rng, 2, N, N)))


THEORY: dict[str, Call] = {
    "all_less_equal": lambda rng: theory.all_less_equal(normal(rng, N), normal(rng, N)),
    "less_equal": lambda rng: theory.less_equal(normal(rng, N), 3.0),
    "conjecture_5": lambda rng: theory.conjecture_5(distances(rng), normal(rng, N, 2)),
    "corollary_15": lambda rng: theory.corollary_15(
        position_gradients(rng), mu(rng), family="agnostic"
    ),
    "equation_9": lambda rng: theory.equation_9(
        normal(rng, 3, 8), np.tile(np.arange(8.0), (3, 1)), slope=0.1, length=4
    ),
    "even_positions_loss": lambda rng: theory.even_positions_loss(
        normal(rng, N, 2), normal(rng, 2)
    ),
    "explained_by_chance": lambda rng: theory.explained_by_chance(
        symmetric(rng), symmetric(rng), key=KEY, orders=3
    ),
    "forcing_of_means": lambda rng: theory.forcing_of_means(
        logits(rng), _means(rng), *projections(rng, 2)
    ),
    "kl_constant": lambda rng: theory.kl_constant(rng.random(3), rng.random(3)),
    "kl_divergences": lambda rng: theory.kl_divergences(mu(rng)),
    "kl_lower_bound": lambda rng: theory.kl_lower_bound(rng.random(3)),
    "kl_ratio": lambda rng: theory.kl_ratio(rng.random(3)),
    "lemma_11": _lemma(theory.lemma_11, 0, mu),
    "lemma_12": _lemma(theory.lemma_12, 2, mu, _means),
    "lemma_14": _lemma(theory.lemma_14, 2, distances, _means),
    "lemma_16": _lemma_16,
    "lemma_18": lambda rng: theory.lemma_18(symmetric(rng), normal(rng, N, 2), distances(rng)),
    "low_rank_descent": _low_rank_descent,
    "mean_embeddings": lambda rng: theory.mean_embeddings(mu(rng), normal(rng, VOCAB, 3)),
    "boolean": lambda rng: theory.boolean(rng.random(3) < 0.5),
    "monotone_fit": lambda rng: theory.monotone_fit(normal(rng, 9), normal(rng, 9)),
    "monotonicity_test": lambda rng: theory.monotonicity_test(counts(rng, folds=4)),
    "nope_theorem_1": lambda rng: theory.nope_theorem_1(
        *_hidden(rng), rng.integers(0, 5, (2, N), dtype=np.int32)
    ),
    "nope_theorem_2": lambda rng: theory.nope_theorem_2(
        normal(rng, 2, N, N), normal(rng, 2, N, N), normal(rng, 2, N, 3)
    ),
    "pairs": lambda rng: theory.pairs(normal(rng, N, N)),
    "position_gradients": _gradients,
    "proposition_6": lambda rng: theory.proposition_6(distances(rng), dim=2, max_iterations=5),
    "remark_20": lambda rng: theory.remark_20(symmetric(rng)),
    "remark_7": lambda rng: theory.remark_7(distances(rng) ** 2, dim=2),
    "remark_8": lambda rng: theory.remark_8(
        distances(rng), width=4, ranks=(1, 2), max_iterations=5
    ),
    "section_4_alibi": lambda rng: theory.section_4_alibi(
        rng.random(3), rng.random(3), rng.random(3), lengths=np.array([8.0, 16.0, 32.0]), slope=0.1
    ),
    "section_4_lipschitz": lambda rng: theory.section_4_lipschitz(
        rng.random((2, 3)), rng.random(3), rng.random((2, 3)), whole=rng.random(2)
    ),
    "section_4_norms": _norms,
    "section_4_rademacher": _rademacher,
    "section_6_legendre": lambda rng: theory.section_6_legendre(
        np.sort(rng.choice(np.arange(17, 128), 20, replace=False)), dim=8, length=16
    ),
    "section_6_wavelet": lambda rng: theory.section_6_wavelet(
        np.sort(rng.choice(np.arange(17, 128), 20, replace=False)), dim=8, length=16
    ),
    "stationary_squared_distances": lambda rng: theory.stationary_squared_distances(
        N, scale=rng.random()
    ),
    "strain": lambda rng: theory.strain(normal(rng, N, 2), symmetric(rng)),
    "theorem_1": lambda rng: theory.theorem_1(
        running_sums,
        rng.integers(0, 9, (3, N), dtype=np.int32),
        np.stack([rng.permutation(N) for _ in range(2)]),
    ),
    "theorem_4": _theorem_4,
    "total_variation": lambda rng: theory.total_variation(mu(rng)),
    "total_variation_bound": lambda rng: theory.total_variation_bound(rng.random(3)),
    "unexplained_by_offset": lambda rng: theory.unexplained_by_offset(symmetric(rng)),
    "verdict": lambda rng: theory.verdict(theory.remark_20(symmetric(rng))),
}


def _generated(**options):
    return lambda rng: nn.generate(model("lm"), token_ids(rng, 2, 3), steps=3, **options)


def _moved_positions(rng):
    of = function_of_positions()
    return of.apply(jnp.asarray(normal(rng, *of.vectors.shape)), of.no_shift, token_ids(rng, N))


def _layers_one_by_one(rng):
    x = jnp.asarray(normal(rng, N, models.DIM))
    return [layer(x) for layer in maps_of_layers()]


def _content_logits(rng):
    return nn.content_logits(made_nope(), jnp.asarray(normal(rng, 3, N, 4)))


def _split_with_means(rng):
    means = normal(rng, 2, N, models.DIM)
    return nn.split_heads(model("encoder"), token_ids(rng, 2, N), means=means)


def _called(rng):
    apply, params = nn.functionalize(model("decoder"))
    return apply(params, token_ids(rng, 2, N)).hidden


def _traced(rng):
    return model("encoder")(token_ids(rng, 2, N), mask=np.arange(N) < 4, trace=True)


def _cached(rng):
    decoder, ids = model("decoder"), token_ids(rng, 2, 4)
    first = decoder(ids[:, :2], cache=decoder.empty_cache(batch=2, slots=4))
    return decoder(ids[:, 2:], cache=first.cache)


NN: dict[str, Call] = {
    "attention_mask": lambda rng: nn.attention_mask(N, valid=rng.random((2, N)) < 0.5, causal=True),
    "content_logits": _content_logits,
    "functionalize": _called,
    "functionalize traced": _traced,
    "functionalize with a cache": _cached,
    "position_functions": _moved_positions,
    "generate": _generated(),
    "generate sampled": _generated(key=KEY, temperature=0.7, top_k=3),
    "head_encoding": lambda rng: nn.head_encoding(model("decoder")).query(
        ((), ()), heads(rng), LINE
    ),
    "layer_maps": _layers_one_by_one,
    "lipschitz_bounds": lambda rng: nn.lipschitz_bounds(
        model("encoder", norm="none"), n=N, radius=rng.random()
    ),
    "nope_decoder": lambda rng: nn.nope_decoder(
        vocab_size=9, dim=4, num_layers=1, num_heads=1, length=N, key=KEY
    ),
    "segment_starts": lambda rng: nn.segment_starts(np.sort(rng.integers(0, 3, (2, N)))),
    "packed_positions": lambda rng: nn.packed_positions(np.sort(rng.integers(0, 3, (2, N)))),
    "padded_positions": lambda rng: nn.padded_positions(rng.random((2, N)) < 0.5),
    "pooled": lambda rng: nn.pooled(normal(rng, 2, N, 3), rng.random((2, N)) < 0.7),
    "position_means": lambda rng: nn.position_means(
        model("encoder"), [{"ids": token_ids(rng, 2, N)} for _ in range(2)]
    ),
    "split_heads": lambda rng: nn.split_heads(model("decoder"), token_ids(rng, 2, N)),
    "split_heads with means": _split_with_means,
    "sum_hidden": lambda rng: nn.sum_hidden(model("classifier"), token_ids(rng, 2, N)),
}


def _probed(rng):
    place = np.arange(N, dtype=np.int32)
    sizes = {"num_heads": HEADS, "head_dim": WIDTH}
    return training.encoding_probe(ALIBI, (), place, reference(rng), **sizes)


def _fitted(rng):
    data = training.batches(batch(rng), batch_size=2, seed=0)
    return training.fit(state(rng), STEP, data, steps=2).state


def _updated(rng):
    with jax.numpy_dtype_promotion("standard"):  # Optax does not know the strict one
        return ADAMW.update({"kernel": jnp.asarray(normal(rng, 3))}, *ADAMW_STATE)


TRAINING: dict[str, Call] = {
    "accuracy": lambda rng: training.accuracy(normal(rng, 6, 3), rng.integers(0, 3, 6)),
    "adamw": _updated,
    "as_record": lambda rng: training.as_record(
        training.probe_geometry(normal(rng, N, 3), reference(rng))
    ),
    "causal_lm": task("causal_lm"),
    "causal_lm_loss": lambda rng: training.causal_lm_loss(
        normal(rng, 2, N, VOCAB), rng.integers(0, VOCAB, (2, N), dtype=np.int32)
    ),
    "classification": task("classification"),
    "cross_entropy": lambda rng: training.cross_entropy(normal(rng, 6, 3), rng.integers(0, 3, 6)),
    "encoding_probe": _probed,
    "evaluate": lambda rng: training.evaluate(train_loss, {"w": normal(rng, 3)}, [batch(rng)] * 2),
    "fit": _fitted,
    "init_state": state,
    "learning_rate_schedule": lambda rng: SCHEDULE(jnp.asarray(rng.integers(0, 9))),
    "logits_at": lambda rng: training.logits_at(
        masked_lm(), jnp.asarray(token_ids(rng, 2, N)), jnp.array([[0], [3]])
    ),
    "mask_tokens": lambda rng: training.mask_tokens(
        KEY, rng.integers(2, VOCAB, (3, N), dtype=np.int32), vocab_size=VOCAB, mask_id=1
    ),
    "masked_lm": task("masked_lm"),
    "mean_squared_error": lambda rng: training.mean_squared_error(normal(rng, 6), normal(rng, 6)),
    "perplexity": lambda rng: training.perplexity(
        training.cross_entropy(normal(rng, 6, 3), rng.integers(0, 3, 6))
    ),
    "probe_geometry": lambda rng: training.probe_geometry(normal(rng, N, 3), reference(rng)),
    "reference_geometry": reference,
    "regression": task("regression"),
    "translation": task("translation"),
    "step_function": lambda rng: PLAIN_STEP(state(rng), batch(rng)),
    "train_step": lambda rng: STEP(state(rng), batch(rng)),
}
SCHEDULE = training.learning_rate_schedule(peak=1.0, steps=10, warmup=2)
ADAMW = training.adamw(0.1, weight_decay=0.5)
ADAMW_STATE = ADAMW.init({"kernel": jnp.ones(3)}), {"kernel": jnp.ones(3)}


@functools.cache
def masked_lm():
    return nn.MaskedLM(model("encoder"), rngs=nnx.Rngs(1))


DATA: dict[str, Call] = {
    "sequence_pairs": lambda rng: jaxpe.data.sequence_pairs(
        np.array([[1, 5, 2, 4 + rng.integers(2), 3, 0]], np.int32)
    ),
    "sequence_task": lambda rng: task_of_sequences().sample(
        jax.random.key(rng.integers(99)), rows=2, length=3
    ),
}


def _eigenpairs(rng):
    return geometry.principal_eigenpairs(apply_operator, N, dim=2, tolerance=1e-6)


def _many_points(rng):
    cloud = geometry.PointCloud(jnp.asarray(normal(rng, N, 3)), jnp.arange(N) != 1)
    return geometry.sum_over_pairs(error, normal(rng, N, 2), cloud, block=2)


GEOMETRY: dict[str, Call] = {
    "compare_geometries": lambda rng: geometry.compare_geometries(
        counts(rng, folds=4), counts(rng, folds=4), key=KEY, dim=2, permutations=3
    ),
    "holm_adjusted": lambda rng: geometry.holm_adjusted(rng.random(5)),
    "principal_angles": lambda rng: geometry.principal_angles(normal(rng, N, 2), normal(rng, N, 2)),
    "empty_counts": lambda rng: geometry.empty_counts(length=3, vocab_size=4),
    "principal_eigenpairs": _eigenpairs,
    "smacof of points": lambda rng: geometry.smacof(
        geometry.PointCloud(jnp.asarray(normal(rng, N, 3)), jnp.ones(N, bool)),
        dim=2,
        init=normal(rng, N, 2),
        max_iterations=3,
    ),
    "sum_over_pairs": _many_points,
}

PACKAGES: dict[str, dict[str, Call]] = {
    "geometry": GEOMETRY,
    "encodings": {},
    "spectral": SPECTRAL,
    "ntk": NTK,
    "theory": THEORY,
    "nn": NN,
    "training": TRAINING,
    "data": DATA,
}

# Public functions without a call here, and why.
HOST = "NumPy or plain Python: nothing is compiled"
FILES = "reads or writes files; what it computes with has rows of its own"
BUILDS = "builds an encoding, whose hooks are called below"
EXEMPT = {
    "geometry": {
        "pad_documents": HOST,
        "position_bins": HOST,
        "stack_corpora": HOST,
    },
    "encodings": {
        **dict.fromkeys(constructors(), BUILDS),
        "alibi_slopes": HOST,
        "catalogue": HOST,
        "inverse_frequencies": HOST,
        "register": HOST,
        "resolve": HOST,
        "rope_frequencies": HOST,
        "rope_to_hf": HOST,
        "rotary_permutation": HOST,
        **dict.fromkeys(
            (
                "encoding_cost",
                "encoding_expressiveness",
                "encoding_extrapolation",
                "encoding_generalisation",
                "encoding_properties",
            ),
            "builds an encoding of its own and compiles to look at the programs; takes no arrays",
        ),
    },
    "nn": {
        "load_classifier": FILES,
        "load_causal_lm": FILES,
        "load_seq2seq_lm": FILES,
        "load_masked_lm": FILES,
        "load_model": FILES,
        "parameter_count": HOST,
        "position_table": HOST,
        "save_huggingface": FILES,
        "trunk": HOST,
    },
    "training": {
        "batches": HOST,
        "every_n_steps": HOST,
        "in_order": HOST,
        "load_config": FILES,
        "load_run": FILES,
        "read_log": FILES,
        "weight_decay_mask": HOST,
        "train": "a job, of the parts that have rows here",
    },
    "data": {
        **dict.fromkeys(
            (
                "check_data_dir",
                "containment_groups",
                "count_triggers",
                "dependent_groups",
                "hold_out",
                "near_copy_groups",
                "neighbour_similarity",
                "open_tokenizer",
                "relative_distance",
                "three_regimes",
                "tokenize",
                "tokenizer_of_ids",
                "tokens_from_ids",
                "vocabulary_of",
                "zipf_drift",
                "zipf_stationary",
            ),
            HOST,
        ),
        **dict.fromkeys(
            (
                "export_corpus",
                "find_shards",
                "load_corpus",
                "load_labelled",
                "load_tokens",
                "open_corpus",
            ),
            FILES,
        ),
    },
}

CALLS = {name: call for calls in PACKAGES.values() for name, call in calls.items()}


def public_functions(package):
    module = importlib.import_module(f"jaxpe.{package}")
    names = (name for name in dir(module) if name[0] != "_")
    return {name for name in names if inspect.isroutine(inspect.unwrap(getattr(module, name)))}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_is_called_here(package):
    exempt = set(EXEMPT.get(package, ()))
    rows = {*PACKAGES[package], *CASES}  # tests/test_transforms.py looks at CASES
    called = {name.split(" ")[0] for name in rows}
    called |= {name for name in public_functions(package) if f"{name}_of_points" in rows}
    assert public_functions(package) - called == exempt


def test_no_package_is_forgotten():
    """Jobs compile what they need once a run; plots and plans of rotary embeddings nothing."""
    jobs = {"_core", "analysis", "cli", "plot", "report", "rope"}
    found = {module.name for module in pkgutil.iter_modules(jaxpe.__path__) if module.ispkg}
    assert found - jobs == set(PACKAGES)


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_compiles_nothing(name):
    jax.block_until_ready(jax.tree.leaves(CALLS[name](np.random.default_rng(0))))
    with compilations() as compiled:
        CALLS[name](np.random.default_rng(1))
    assert not compiled


ROWS = [entry for entry in encodings.catalogue() if not entry.variant_of]


@pytest.mark.parametrize("entry", ROWS, ids=lambda entry: entry.name)
def test_hooks_of_an_encoding_compile_once(entry):
    encoding = entry.first_layer(SIZES)
    distances = not encoding.defines("context")

    def call(seed):
        rng = np.random.default_rng(seed)
        params = encoding.init(jax.random.key(seed))
        shape = (N,) if entry.coordinates == 1 else (N, entry.coordinates)
        i = rng.integers(0, SIZES.length, shape, dtype=np.int32)
        q, k = heads(rng), heads(rng)
        if encoding.defines("context"):
            found, _ = encoding.context(params, normal(rng, N, SIZES.dim), i, encodings.Rows())
            bound = bind_context(encoding, found, found)
            bound.query(params, q, i), bound.key(params, k, i), bound.bias(params, q, k, i, i)
            return
        encoding.embed(params, normal(rng, N, SIZES.dim), i)
        encoding.query(params, q, i), encoding.key(params, k, i)
        encoding.bias(params, q, k, i, i)
        encoding.value(params, jnp.asarray(weights(rng)), i, i)
        if encoding.defines("vectors"):
            encoding.vectors(params, i)
            encodings.encoding_distances(encoding, params, i)
        if distances and not encoding.defines("embed"):
            sizes = {"num_heads": HEADS, "head_dim": WIDTH}
            encodings.encoding_distances(encoding, params, i, by="logits", **sizes)

    call(0)
    with compilations() as compiled:
        call(1)
    assert not compiled


def test_compilations_are_seen_also_where_the_cache_has_them():
    x = jnp.ones(3)
    for _ in range(2):
        with compilations() as compiled:
            jax.lax.map(lambda value: 2 * value, x)  # a new function each time
        assert len(compiled) == 1
    with compilations() as compiled:
        jax.lax.neg(x)
        jax.lax.neg(x)
    assert len(compiled) <= 1
