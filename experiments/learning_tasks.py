"""Three tasks on real text where position matters, and a small transformer that learns them.

- `next word`: the first words of IMDB's reviews, each predicting the next one (causal).
- `words at offsets`: the same text, where one token in seven stands for "the word k places on",
  k = ±1, ±2, ±4, ±8, and has to name that word.
- `tags`: characters of the standard library's source lines, each to be given the kind of token
  that it belongs to: Python's own tokenizer, names told apart by what stands beside them.
"""

import io
import keyword
import sysconfig
import time
import tokenize
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.common import DataMissingError
from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe.data import load_tokens
from jaxpe.nn import Decoder, Encoder, TransformerConfig, functionalize
from jaxpe.training import adamw, init_state, step_function
from jaxpe.training.losses import cross_entropy

LENGTH, WORDS = 48, 500
SIZES = encodings.EncodingSizes(dim=32, num_heads=4, head_dim=8, length=LENGTH)
HELD_OUT = 2000  # rows
AT_OFFSETS = (-8, -4, -2, -1, 1, 2, 4, 8)
TAGS = ("space", "keyword", "name", "attribute", "call", "definition", "number", "string",
        "docstring", "comment", "operator")  # fmt: skip
OTHER = 95  # a character that is not printable ASCII


class Rows(NamedTuple):
    """What is read and what is to be said, `[rows, n]` each."""

    ids: Any
    mask: Any
    labels: Any
    scored: Any

    def take(self, chosen: Any) -> "Rows":
        return Rows(*(x[chosen] for x in self))


class Task(NamedTuple):
    """Rows to learn from and held-out ones; what positions hold is counted in `plain` ids."""

    name: str
    train: Rows
    held_out: Rows
    plain: np.ndarray
    vocab_size: int
    classes: int
    causal: bool = False


def tasks(*, quick: bool = False) -> dict[str, Callable[[], Task]]:
    """By name; read when called."""
    rows = 3000 if quick else None
    makers = {"next word": next_words, "words at offsets": words_at_offsets, "tags": tags}
    return {name: partial(make, rows) for name, make in makers.items()}


def next_words(rows: int | None = None, *, length: int = LENGTH) -> Task:
    ids, mask = _reviews(length)
    following = np.zeros_like(mask)
    following[:, :-1] = mask[:, 1:]
    labels = np.roll(ids, -1, axis=1)
    data = Rows(ids, mask, labels, following & mask & (labels >= 2))
    return _divided("next word", data, ids, WORDS + 2, WORDS + 2, rows, causal=True)


def words_at_offsets(rows: int | None = None) -> Task:
    """A marker for every offset; no marker points at a marker, an unknown word or beyond."""
    plain, mask = _reviews()
    rng = np.random.default_rng(0)
    offset = rng.integers(0, len(AT_OFFSETS), plain.shape)
    at = np.arange(LENGTH) + np.array(AT_OFFSETS)[offset]
    inside = (at >= 0) & (at < LENGTH)
    at = np.where(inside, at, 0)
    row = np.arange(len(plain))[:, None]
    marked = (rng.random(plain.shape) < 0.15) & mask & inside & mask[row, at]
    marked &= ~marked[row, at] & (plain[row, at] >= 2)
    ids = np.where(marked, WORDS + 2 + offset, plain)
    data = Rows(ids.astype(np.int32), mask, plain[row, at], marked)
    size = WORDS + 2
    return _divided("words at offsets", data, plain, size + len(AT_OFFSETS), size, rows)


def tags(rows: int | None = None) -> Task:
    """Lines of at least 24 characters, cut at `LENGTH`."""
    ids, labels = _lines()
    mask = ids > 0
    return _divided("tags", Rows(ids, mask, labels, mask), ids, OTHER + 2, len(TAGS), rows)


def _divided(
    name: str, data: Rows, plain: np.ndarray, vocab_size: int, classes: int, rows: int | None,
    *, causal: bool = False,
) -> Task:  # fmt: skip
    order = np.random.default_rng(1).permutation(len(data.ids))[:rows]
    held = HELD_OUT if rows is None else rows // 4
    fit = order[held:]
    return Task(name, data.take(fit), data.take(order[:held]), plain[fit], vocab_size, classes,
                causal)  # fmt: skip


@cache
def _reviews(length: int = LENGTH) -> tuple[np.ndarray, np.ndarray]:
    """Ids `[reviews, n]`: 0 padding, 1 a rare word, then the most frequent ones."""
    try:
        corpus = load_tokens("imdb", length=length)
    except InputError as error:
        raise DataMissingError(str(error)) from error
    words = np.setdiff1d(corpus.ids[corpus.mask], corpus.exclude)
    counts = np.bincount(corpus.ids[corpus.mask], minlength=corpus.vocab_size)
    number = np.ones(corpus.vocab_size, np.int32)
    number[words[np.argsort(-counts[words], kind="stable")][:WORDS]] = np.arange(WORDS) + 2
    return np.where(corpus.mask, number[corpus.ids], 0), corpus.mask


@cache
def _lines() -> tuple[np.ndarray, np.ndarray]:
    """Characters and tags `[lines, n]` of the standard library's modules."""
    ids, labels = [], []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            source = path.read_text(encoding="utf-8")
            kinds = tagged(source)
        except (SyntaxError, tokenize.TokenError, UnicodeDecodeError):
            continue
        for line, kind in zip(source.splitlines(), kinds, strict=False):
            if len(line) >= LENGTH // 2:
                codes = [ord(c) - 31 if " " <= c <= "~" else OTHER + 1 for c in line[:LENGTH]]
                room = LENGTH - len(codes)
                ids.append(codes + [0] * room)
                labels.append(kind[:LENGTH] + [0] * room)
    return np.array(ids, np.int32), np.array(labels, np.int32)


def tagged(source: str) -> list[list[int]]:
    """The tag of every character, line by line."""
    lines = source.splitlines()
    found = [[0] * len(line) for line in lines]
    for token, kind in _kinds(source):
        (first, start), (last, end) = token.start, token.end
        for row in range(first, min(last, len(lines)) + 1):
            begin = start if row == first else 0
            stop = end if row == last else len(lines[row - 1])
            found[row - 1][begin:stop] = [TAGS.index(kind)] * (stop - begin)
    return found


def _kinds(source: str) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    quiet = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    every = list(tokenize.generate_tokens(io.StringIO(source).readline))
    neighbours = zip([every[0], *every[:-1]], every, [*every[1:], every[-1]], strict=True)
    for before, token, after in neighbours:
        if token.type not in quiet:
            yield token, _kind(token, before, after)


def _kind(token: tokenize.TokenInfo, before: tokenize.TokenInfo, after: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        if keyword.iskeyword(token.string):
            return "keyword"
        if before.string in ("def", "class"):
            return "definition"
        if after.string == "(":
            return "call"
        return "attribute" if before.string == "." else "name"
    if token.type == tokenize.STRING:
        alone = before.type in (tokenize.INDENT, tokenize.NEWLINE, tokenize.NL)
        return "docstring" if alone and after.type == tokenize.NEWLINE else "string"
    return {tokenize.NUMBER: "number", tokenize.COMMENT: "comment"}.get(token.type, "operator")


class Tagger(nnx.Module):
    """Classes of every token."""

    def __init__(self, task: Task, encoding: Any, key: jax.Array, sizes: Any = SIZES):
        config = TransformerConfig(
            vocab_size=task.vocab_size,
            dim=sizes.dim,
            num_layers=2,
            num_heads=sizes.num_heads,
            hidden_dim=2 * sizes.dim,
            embedding_scale=sizes.dim**-0.5,
            init_scale=0.7 * sizes.dim**-0.5,
        )
        body, head = jax.random.split(key)
        make = Decoder if task.causal else Encoder
        self.transformer = make(config, encoding=encoding, rngs=nnx.Rngs(body))
        self.output = nnx.Linear(sizes.dim, task.classes, rngs=nnx.Rngs(head))

    def __call__(self, ids: Any, **options: Any) -> jax.Array:
        return self.output(self.transformer(ids, **options).hidden)


class Trained(NamedTuple):
    """Models of all seeds `[seeds, ...]` by step, first and last among them, and their training."""

    apply: Callable[..., jax.Array]
    params: dict[int, Any]
    losses: np.ndarray  # [steps, seeds]
    held_out: np.ndarray  # [seeds], nats a scored token
    steps: int
    reason: str
    seconds: float


def train(
    task: Task,
    encoding: encodings.Encoding | encodings.LayerPattern,
    *,
    rate: float,
    seeds: int,
    most: int = 2400,
    window: int = 300,
    tail: int = 300,
    batch: int = 32,
    keep: Collection[int] = (),
) -> Trained:
    """Train until the loss has stopped falling, then let the rate fall to 0 over `tail` steps.

    Stopped: no seed's mean loss over the last `window` steps is 1 % below that of the window
    before; at the latest after `most` steps. Models are kept at the steps of `keep`, multiples of
    tail/3. Adam; all seeds and encodings see the same batches.
    """
    begun = time.perf_counter()
    apply, _ = functionalize(Tagger(task, encoding, jax.random.key(0)))
    start = initial_params(task, encoding, seeds=seeds)
    loss = partial(tagging, apply)
    data = Rows(*map(jnp.asarray, task.train))

    def optimizer(ends: Any, rate: Any) -> Any:
        warm = most // 40
        return adamw(
            lambda t: rate * jnp.clip(jnp.minimum(t / warm, (ends - t) / tail), 0, 1),
            weight_decay=0.0,
        )

    state = jax.vmap(lambda p: init_state(p, optimizer(1e9, rate), key=jax.random.key(0)))(start)

    @jax.jit
    def some_steps(state, rows, data, ends, rate):
        step = step_function(loss, optimizer(ends, rate))

        def one(state, chosen):
            part = jax.tree.map(lambda x: x[chosen], data)
            state, metrics = jax.vmap(step, in_axes=(0, None))(state, part)
            return state, metrics["loss"]

        return jax.lax.scan(one, state, rows)

    rng, losses, block = np.random.default_rng(2), np.zeros((0, seeds)), tail // 3
    ends, reason, kept = np.inf, "budget", {0: start}
    while len(losses) < ends:
        rows = rng.integers(0, len(task.train.ids), (block, batch))
        state, more = some_steps(state, jnp.asarray(rows), data, min(ends, 1e9), rate)
        losses = np.concatenate([losses, np.asarray(more)])
        if len(losses) in keep:
            kept[len(losses)] = state.params
        if ends == np.inf and stopped(losses, window):
            ends, reason = len(losses) + tail, "settled"
        elif ends == np.inf and len(losses) >= most - tail:
            ends = len(losses) + tail
    held_out = judged(loss, state.params, task.held_out)
    kept[len(losses)] = state.params
    return Trained(apply, kept, losses, held_out, len(losses), reason,
                   time.perf_counter() - begun)  # fmt: skip


def initial_params(task: Task, encoding: Any, *, seeds: int) -> Any:
    """Parameters before training, of every seed."""
    begin = jax.jit(jax.vmap(lambda key: functionalize(Tagger(task, encoding, key))[1]))
    return begin(jax.random.split(jax.random.key(1), seeds))


def tagging(apply: Any, params: Any, rows: Rows, key: Any) -> Any:
    """Cross-entropy of what is scored."""
    logits = apply(params, rows.ids, mask=rows.mask)
    return cross_entropy(logits, rows.labels, mask=rows.scored), {}


def stopped(losses: np.ndarray, window: int) -> bool:
    if len(losses) < 2 * window:
        return False
    last, before = losses[-window:].mean(0), losses[-2 * window : -window].mean(0)
    return bool(np.all(last > 0.99 * before))


def judged(loss: Any, params: Any, data: Rows, *, size: int = 500) -> np.ndarray:
    """Mean loss of every seed over all rows."""
    judge = jax.jit(jax.vmap(lambda p, rows: loss(p, rows, None)[0], in_axes=(0, None)))
    parts = [judge(params, data.take(slice(k, k + size))) for k in range(0, len(data.ids), size)]
    total = np.sum([np.asarray(part.total) for part in parts], axis=0)
    return total / np.sum([np.asarray(part.weight) for part in parts], axis=0)
