"""Sequence tasks of any length, drawn on the device: train on short rows, test on long ones.

A row of token ids is `<bos> input <sep> answer <eos>`, padded on the right. Padding is 0; `<bos>`,
`<sep>` and `<eos>` are 1, 2 and 3; the words of a task follow. A row depends on its key alone.
"""

import inspect
from collections.abc import Callable
from functools import partial
from itertools import product, zip_longest
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int32

from jaxpe._core.arrays import ArrayLike
from jaxpe._core.errors import InputError, unknown
from jaxpe._core.memory import check_bytes
from jaxpe._core.options import LARGEST_SIZE, check_range
from jaxpe.data.tokens.vocabulary import LARGEST_VOCABULARY

PADDING, BOS, SEP, EOS, FIRST_WORD = range(5)

Words = tuple[Int32[Array, " _"], Int32[Array, ""]]  # words, and how many of them are meant
Row = dict[str, Array]  # or a batch of them


class SequenceTask(NamedTuple):
    """Task whose rows have an input of any length, and an answer over several positions.

    A batch of "tokens" has `ids` and `labels` (the next token at each position, padding after the
    last), int32 `[rows, n]`; `mask` (false on padding) and `scored` (the next token belongs to the
    answer, `<eos>` included: from `<sep>` on), bool `[rows, n]`; n is `tokens(length)`. A row is
    answered if the most likely token is the label at all scored positions. These are exactly the
    rows on which greedy decoding succeeds, since it reads the labels until its first mistake.

    A batch of "numbers" has `values` and `labels`, float32 `[rows, n, 1]`, zero on padding, and
    `mask` and `scored`, bool `[rows, n]`, true where there is a number.

    Attributes:
        name: name of the task, such as "reverse".
        kind: "tokens" or "numbers".
        causal: whether the model must be causal.
        vocab_size: ids are below it; 0 for numbers.
        tokens: function from the length of an input to the number of positions in a row.
        sample: `(key, *, rows, length, exact=True) -> batch`, compiled once for each choice of
            rows, length and exact. Inputs have the given length if `exact`; otherwise each row
            draws its own from U{1..length}. Works under `jit` and `vmap` over keys. Raises
            `ValueError` for anything but one typed key, and for rows or lengths below 1.
    """

    name: str
    kind: Literal["tokens", "numbers"]
    causal: bool
    vocab_size: int
    tokens: Callable[[int], int]
    sample: Callable[..., Row]


def sequence_task(name: str, **sizes: int | str) -> SequenceTask:
    """Sequence task by name; its sizes have defaults.

    Tasks of numbers, y_t = Σ_{s≤t} x_s, as in §7.1 of Li (2025), who does not state the law of x:

    - `running_sum`, and `running_sum_causal` for causal models. `law`: "uniform" on (−1, 1),
      "normal", "positive" (uniform on (0, 1)), or "signs" (−1 or 1).

    Tasks of tokens, all causal, after the suite of Kazemnejad et al. (2023), arXiv:2305.19466.
    Formats, laws and sizes are our own. Words are uniform and independent unless stated.

    - `copy`, `reverse`, `sort` (ascending; word 0 is the smallest): `length` words of
      `vocabulary` = 32.
    - `addition`: two numbers of `length` digits to `base` = 10, with a `+` (word `base`) between,
      and their sum. The most significant digit is first, and not 0. A sum without a last carry has
      one digit fewer, and its row is padded.
    - `parity`: bits, and their sum modulo 2. `summation`: digits below `base` = 10, and their sum
      modulo `base`. The answer is one word.
    - `composition`, after PCFG SET (Hupkes et al., 2020): `depth` = 3 functions, the outermost
      first, then a string of `length` words; the answer is the string after all functions. Words
      after the `vocabulary` = 32 are the functions copy, reverse, shift (the first word moves to
      the end), swap_first_last, append and prepend, then a comma. append and prepend are innermost
      only, and put y after or before x. The comma separates x and y, which have `length` words
      together; y is empty for `length` 1. All functions keep the length: echo, repeat and remove of
      PCFG SET are left out.
    - `scan`, after SCAN (Lake and Baroni, 2018): `length` clauses joined by `and`. A clause is one
      of walk, look, run, jump, then left, right or neither, then twice, thrice or neither. The
      answer is the actions, each after its turn to the left or right. Words are walk, look, run,
      jump, left, right, twice, thrice, and, WALK, LOOK, RUN, JUMP, LTURN, RTURN. Rows are padded to
      the longest possible row. SCAN's opposite, around, after and bare turns are left out.

    Build a task once: each build compiles its `sample` again.

    Args:
        name: one of the tasks above.
        **sizes: `law`, `vocabulary`, `base` or `depth`, where the task has it.

    Raises:
        InputError: an unknown name, a size that the task lacks, or a size out of range.

    >>> task = sequence_task("copy", vocabulary=5)
    >>> batch = task.sample(jax.random.key(0), rows=2, length=3)
    >>> scored = batch["scored"].sum(axis=1)
    >>> task.vocab_size, task.tokens(3), batch["ids"].shape, scored.tolist()
    (9, 9, (2, 9), [4, 4])
    """
    if name not in _BUILDERS:
        raise InputError(unknown("task", name, _BUILDERS))
    _check_sizes(name, sizes)
    return _BUILDERS[name](**sizes)._replace(name=name)


def sequence_pairs(ids: Int32[ArrayLike, "rows n"]) -> Row:
    """Inputs and answers of rows `<bos> input <sep> answer <eos>`, for an encoder–decoder.

    Returns:
        `ids` `[rows, n − 1]`, the input followed by `<eos>`, and `mask`, false on padding; `labels`
        `[rows, n − 1]`, the answer followed by `<eos>`, 0 on padding. A decoder reads the labels
        shifted by one, after `<bos>` (1).

    >>> pairs = sequence_pairs(jnp.array([[1, 8, 9, 2, 9, 8, 3, 0]], jnp.int32))
    >>> pairs["ids"].tolist(), pairs["labels"].tolist()
    ([[8, 9, 3, 0, 0, 0, 0]], [[9, 8, 3, 0, 0, 0, 0]])
    """
    ids = jnp.asarray(ids)
    index = _positions(ids.shape[-1])[None]
    sep = jnp.argmax(ids == SEP, axis=-1).astype(jnp.int32)[:, None]
    asked = jnp.where(index < sep, ids, jnp.where(index == sep, EOS, PADDING))[:, 1:]
    behind = jnp.take_along_axis(ids, sep + 1 + index, axis=-1, mode="fill", fill_value=PADDING)
    return {"ids": asked, "mask": asked != PADDING, "labels": behind[:, :-1]}


def _sampler(
    row: Callable[[Array, Array, int], Row], tokens: Callable[[int], int]
) -> Callable[..., Row]:
    """Function that draws batches of rows, each from its own key and with its own size ≤ length."""

    @partial(jax.jit, static_argnames=("rows", "length", "exact"))
    def draw(key, *, rows, length, exact):
        def one(key):
            size_key, row_key = jax.random.split(key)
            size = jnp.int32(length) if exact else 1 + _draw(size_key, (), length)
            return row(row_key, size, length)

        return jax.vmap(one)(jax.random.split(key, rows))

    def sample(key: ArrayLike | int, *, rows: int, length: int, exact: bool = True) -> Row:
        _check_key(key)
        _check(rows=rows, length=length)
        positions = tokens(length)
        if positions > LARGEST_SIZE:
            raise InputError(
                f"`length` is {length}, and a row has {positions} positions; pass a length with at "
                f"most {LARGEST_SIZE:,}"
            )
        what = f"`rows={rows}` of `length={length}`"
        check_bytes(_CELL * rows * positions, what=what, remedy="pass fewer or shorter rows")
        return draw(key, rows=rows, length=length, exact=exact)

    return sample


# Numbers.

_LAWS = {
    "uniform": partial(jax.random.uniform, minval=-1.0),
    "normal": jax.random.normal,
    "positive": jax.random.uniform,
    "signs": jax.random.rademacher,
}


def _running_sum(causal: bool, *, law: str = "uniform") -> SequenceTask:
    if law not in _LAWS:
        raise InputError(f"`law` is {law!r}: pass one of {', '.join(_LAWS)}")

    def row(key, size, length):
        is_input = _positions(length) < size
        x = jnp.where(is_input, _LAWS[law](key, (length,), dtype=jnp.float32), 0)
        y = jnp.where(is_input, jnp.cumsum(x), 0)
        return {"values": x[:, None], "labels": y[:, None], "mask": is_input, "scored": is_input}

    tokens = int  # a position for each number
    return SequenceTask("", "numbers", causal, 0, tokens, _sampler(row, tokens))


# Tokens.


def _language(
    words: int,
    positions: Callable[[int], int],
    pair: Callable[[Array, Array, int], tuple[Words, Words]],
) -> SequenceTask:
    """Task of words 0, 1, ... from pairs of input and answer.

    `positions` is a function from the length to the number of words in the longest pair.
    """

    def tokens(length):
        return positions(length) + 3

    def row(key, size, length):
        return _token_row(*pair(key, size, length), tokens(length))

    return SequenceTask("", "tokens", True, FIRST_WORD + words, tokens, _sampler(row, tokens))


def _token_row(question: Words, answer: Words, n: int) -> Row:
    """Row `<bos> input <sep> answer <eos>` with padding, its labels, and the scored positions."""
    index = _positions(n)
    sep = 1 + question[1]
    eos = sep + 1 + answer[1]
    asked, answered = (
        FIRST_WORD + _take(words, index - start)
        for (words, _), start in ((question, 1), (answer, sep + 1))
    )
    ids = jnp.where(index < sep, asked, answered)
    ids = jnp.where(index < eos, ids, PADDING).at[0].set(BOS).at[sep].set(SEP).at[eos].set(EOS)
    return {
        "ids": ids,
        "mask": index <= eos,
        "labels": jnp.append(ids[1:], jnp.int32(PADDING)),
        "scored": (sep <= index) & (index < eos),
    }


def _strings(function: Callable[[Array, Array], Array], *, vocabulary: int = 32) -> SequenceTask:
    """Task of uniform words; the answer is a function of them of equal length."""

    def pair(key, size, length):
        words = _draw(key, (length,), vocabulary)
        return (words, size), (function(words, size), size)

    return _language(vocabulary, lambda length: 2 * length, pair)


def _backwards(words: Int32[Array, " length"], size: Array) -> Int32[Array, " length"]:
    """First `size` words in reverse order."""
    return _take(words, size - 1 - _positions(len(words)))


def _ascending(words: Int32[Array, " length"], size: Array) -> Int32[Array, " length"]:
    """First `size` words in ascending order."""
    return jnp.sort(jnp.where(_positions(len(words)) < size, words, LARGEST_VOCABULARY))


def _summation(*, base: int = 10) -> SequenceTask:
    def pair(key, size, length):
        check_range("length", length, most=LARGEST_SIZE // base)  # no sum overflows int32
        digits = _draw(key, (length,), base)
        total = jnp.sum(jnp.where(_positions(length) < size, digits, 0), dtype=jnp.int32)
        return (digits, size), (total[None] % base, jnp.int32(1))

    return _language(base, lambda length: length + 1, pair)


def _addition(*, base: int = 10) -> SequenceTask:
    plus = base

    def pair(key, size, length):
        a, b = jax.vmap(lambda key: _number(key, size, length, base))(jax.random.split(key))
        total = _digit_sum(a, b, base)
        digits = size + (total[size] > 0).astype(jnp.int32)
        index = _positions(2 * length + 1)
        left, right = (_take(_backwards(x, size), index - at) for x, at in ((a, 0), (b, size + 1)))
        asked = jnp.where(index < size, left, right).at[size].set(plus)
        return (asked, 2 * size + 1), (_backwards(total, digits), digits)

    return _language(base + 1, lambda length: 3 * length + 2, pair)


def _number(key: Array, size: Array, length: int, base: int) -> Int32[Array, " length"]:
    """Random number of `size` digits, the least significant first, followed by zeros."""
    index = _positions(length)
    least = (index == size - 1).astype(jnp.int32)  # a leading digit is not 0
    digits = least + _draw(key, (length,), base - least)
    return jnp.where(index < size, digits, 0)


def _digit_sum(
    a: Int32[Array, " length"], b: Int32[Array, " length"], base: int
) -> Int32[Array, " length+1"]:
    """Add digits of two numbers, the least significant first."""
    total = a + b
    # A digit sum of base − 1 passes the carry on; any other decides it. So the carry out of a
    # position is the one of the nearest lower position that decides.
    decided = 2 * _positions(len(a)) + (total >= base).astype(jnp.int32)
    carry = jax.lax.cummax(jnp.where(total == base - 1, 0, decided)) % 2
    none = jnp.zeros(1, jnp.int32)
    return (jnp.append(total, none) + jnp.append(none, carry)) % base


_UNARY, _BINARY = 4, 2  # functions of strings


def _composition(*, vocabulary: int = 32, depth: int = 3) -> SequenceTask:
    comma = vocabulary + _UNARY + _BINARY

    def pair(key, size, length):
        keys = jax.random.split(key, 3)
        words = _draw(keys[0], (length,), vocabulary)
        choices = jnp.full(depth, _UNARY, jnp.int32).at[-1].add(_BINARY)
        functions = _draw(keys[1], (depth,), choices)
        cut = 1 + _draw(keys[2], (), jnp.maximum(size - 1, 1))
        source = _positions(length)
        for function in functions:
            source = _source(function, source, size, cut)
        index = _positions(length + 1)
        binary = functions[-1] >= _UNARY
        behind = (binary & (index > cut)).astype(jnp.int32)
        string = jnp.where(binary & (index == cut), comma, _take(words, index - behind))
        asked = jnp.append(vocabulary + functions, string)
        return (asked, depth + size + binary.astype(jnp.int32)), (_take(words, source), size)

    return _language(comma + 1, lambda length: depth + 1 + 2 * length, pair)


def _source(function: Array, index: Array, size: Array, cut: Array) -> Array:
    """Indices of the words before a function; indices compose outermost first."""
    last = size - 1
    swapped = jnp.where(index == 0, last, jnp.where(index == last, 0, index))
    moves = [index, last - index, (index + 1) % size, swapped, index, (index + cut) % size]
    return jnp.stack(moves)[function]


_VERBS = ("walk", "look", "run", "jump")
_SIDES = {"": (), "left": ("LTURN",), "right": ("RTURN",)}
_TIMES = {"": 1, "twice": 2, "thrice": 3}
_COMMANDS = (*_VERBS, "left", "right", "twice", "thrice", "and")
_ACTIONS = (*(verb.upper() for verb in _VERBS), "LTURN", "RTURN")


def _scan() -> SequenceTask:
    numbers = {word: i for i, word in enumerate(_COMMANDS + _ACTIONS)}
    clauses = list(product(_VERBS, _SIDES, _TIMES))
    commands = _table([[numbers[w] for w in (*clause, "and") if w] for clause in clauses])
    turned = [(*_SIDES[side], verb.upper()) * _TIMES[times] for verb, side, times in clauses]
    actions = _table([[numbers[w] for w in words] for words in turned])

    def pair(key, size, length):
        drawn = _draw(key, (length,), len(clauses))
        asked, count = _concatenated_rows(*commands, drawn, size)
        question = asked, count - 1  # no `and` behind the last
        return question, _concatenated_rows(*actions, drawn, size)

    longest = commands[0].shape[1] + actions[0].shape[1]
    return _language(len(numbers), lambda length: longest * length - 1, pair)


def _table(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as one array, and their lengths."""
    table = np.array([*zip_longest(*rows, fillvalue=0)], np.int32).T
    return table, np.array([*map(len, rows)], np.int32)


def _concatenated_rows(table: np.ndarray, counts: np.ndarray, rows: Array, size: Array) -> Words:
    """Concatenation of the first `size` of the rows of a table."""
    sizes = jnp.where(_positions(len(rows)) < size, jnp.asarray(counts)[rows], 0)
    ends = jnp.cumsum(sizes, dtype=jnp.int32)
    index = _positions(len(rows) * table.shape[1])
    nth = jnp.minimum(jnp.searchsorted(ends, index, side="right"), len(rows) - 1)
    offset = jnp.minimum(index - (ends - sizes)[nth], table.shape[1] - 1)
    return jnp.asarray(table)[rows[nth], offset], ends[-1]


def _draw(key: Array, shape: tuple[int, ...], below: Array | int) -> Int32[Array, "..."]:
    """Random integers in [0, below), uniform up to a bias of `below` / 2³²."""
    # `randint` has less bias, but its extra keys and draws take most of the time to compile.
    bits = jax.random.bits(key, shape, jnp.uint32)
    return (bits % jnp.asarray(below, jnp.uint32)).astype(jnp.int32)


def _positions(n: int) -> Int32[Array, " n"]:
    return jnp.arange(n, dtype=jnp.int32)


def _take(words: Array, index: Array) -> Array:
    """Words at some indices; an index out of range gives an arbitrary word, which is not used."""
    return jnp.take(words, index, mode="clip")


_BUILDERS: dict[str, Callable[..., SequenceTask]] = {
    "running_sum": partial(_running_sum, False),
    "running_sum_causal": partial(_running_sum, True),
    "copy": partial(_strings, lambda words, size: words),
    "reverse": partial(_strings, _backwards),
    "addition": _addition,
    "sort": partial(_strings, _ascending),
    "parity": lambda: _summation(base=2),
    "summation": _summation,
    "composition": _composition,
    "scan": _scan,
}

# Names that `sequence_task` accepts.
SEQUENCE_TASKS: tuple[str, ...] = tuple(_BUILDERS)

_LEAST = {"base": 2}  # smallest sizes above 1
# Each function of `depth` adds to the program that is compiled.
_MOST = {"base": LARGEST_VOCABULARY, "vocabulary": LARGEST_VOCABULARY, "depth": 1000}
_CELL = 64  # bytes per position of a batch, with intermediate values


def _check_sizes(name: str, sizes: dict[str, int | str]) -> None:
    """Raise for a size that the task lacks, of another type than its default, or out of range."""
    defaults = {p.name: p.default for p in inspect.signature(_BUILDERS[name]).parameters.values()}
    for size, value in sizes.items():
        if size not in defaults:
            names = ", ".join(defaults) or "none"
            raise InputError(f"task {name!r} has no size {size!r}; it has {names}")
        if type(value) is not type(defaults[size]):
            wanted = type(defaults[size]).__name__
            raise InputError(f"`{size}` is {value!r}: pass a value of type {wanted}")
    _check(**{size: value for size, value in sizes.items() if isinstance(value, int)})


def _check(**sizes: int) -> None:
    for name, size in sizes.items():
        check_range(name, size, least=_LEAST.get(name, 1), most=_MOST.get(name, LARGEST_SIZE))


def _check_key(key: ArrayLike | int) -> None:
    key = jnp.asarray(key)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(f"key has dtype {key.dtype}: pass a typed key, jax.random.key(seed)")
    if key.shape:
        raise ValueError(f"key has shape {key.shape}: pass one key, or vmap over them")
