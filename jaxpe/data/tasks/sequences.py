"""Sequence tasks of any length, drawn on the device: train on short rows, test on long ones.

A row of token ids is `<bos> input <sep> answer <eos>`, right-padded. Padding is 0, `<bos>`, `<sep>`
and `<eos>` are 1, 2 and 3, the words of a task follow. All that a row is drawn from is its key.
"""

import inspect
from collections.abc import Callable
from functools import partial
from itertools import product
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
from jaxpe.data.tokens.token_ids import LARGEST_VOCABULARY

PADDING, BOS, SEP, EOS, FIRST_WORD = range(5)

Words = tuple[Int32[Array, " _"], Int32[Array, ""]]  # words, and how many of them are meant
Row = dict[str, Array]  # or a batch of them


class SequenceTask(NamedTuple):
    """A task whose rows have an input of any length, and an answer at several places.

    A batch of "tokens" has `ids` and `labels` (the next token at each place, padding behind the
    last), int32 `[rows, n]`; `mask` (false on padding) and `scored` (the next token belongs to the
    answer, `<eos>` included: from `<sep>` on), bool `[rows, n]`; n is `tokens(length)`. A row is
    answered if the most likely token is the label at all its scored places. These are exactly the
    rows on which greedy decoding succeeds: until its first mistake it reads the same tokens.

    A batch of "numbers" has `values` and `labels`, float32 `[rows, n, 1]`, zero on padding, and
    `mask` and `scored`, bool `[rows, n]`, true where there is a number.

    Attributes:
        name: one of `SEQUENCE_TASKS`.
        kind: "tokens" or "numbers".
        causal: whether the model is to look back only.
        vocab_size: ids are below it; 0 for numbers.
        tokens: places in a row for inputs of a given length.
        sample: `(key, *, rows, length, exact=True) -> batch`, compiled once for every rows, length
            and exact. Inputs have the given length if `exact`, else each row its own, from
            U{1..length}. Works under `jit` and `vmap` over keys. ValueError for a key that is not
            one typed key, and for rows or lengths below 1.
    """

    name: str
    kind: Literal["tokens", "numbers"]
    causal: bool
    vocab_size: int
    tokens: Callable[[int], int]
    sample: Callable[..., Row]


def sequence_task(name: str, **sizes: int | str) -> SequenceTask:
    """A task by name; its sizes have defaults.

    Numbers, y_t = Σ_{s≤t} x_s, as in §7.1 of Li (2025), whose law of x is not known:

    - `running_sum`, and `running_sum_causal` for a model that looks back only. `law`: "uniform" on
      (−1, 1), "normal", "positive", uniform on (0, 1), or "signs", −1 or 1.

    Tokens, after the suite of Kazemnejad et al. (2023), arXiv:2305.19466, all causal. Formats, laws
    and sizes are ours: words are uniform and independent unless stated.

    - `copy`, `reverse`, `sort` (ascending, the first word is the least): `length` words of
      `vocabulary` = 32.
    - `addition`: two numbers of `length` digits to `base` = 10, a `+` (word `base`) between, and
      their sum; the most significant digit first, and not 0. A sum without a last carry is a digit
      shorter, and its row padded.
    - `parity`: bits, and their sum modulo 2. `summation`: digits below `base` = 10, and their sum
      modulo `base`. The answer is one word.
    - `composition`, after PCFG SET (Hupkes et al., 2020): `depth` = 3 functions, the outermost
      first, then the string of `length` words that they act on; the answer is what they make of it.
      Behind the `vocabulary` = 32 words come the functions copy, reverse, shift (the first word
      goes last), swap_first_last and, only innermost, append and prepend (y behind or before x),
      then the comma between x and y, whose lengths together are `length`; y is empty where
      `length` is 1. All keep the length: PCFG SET's echo, repeat and remove are left out.
    - `scan`, after SCAN (Lake and Baroni, 2018): `length` clauses with `and` between, each one of
      walk, look, run, jump, then left, right or neither, then twice, thrice or neither; the answer
      is the actions, left and right turns before every one. Words are walk, look, run, jump, left,
      right, twice, thrice, and, WALK, LOOK, RUN, JUMP, LTURN, RTURN. Rows are padded to the longest
      that there can be. SCAN's opposite, around, after and bare turns are left out.

    Build a task once: its `sample` keeps what it compiled, another build compiles again.

    Raises:
        InputError: for a name that is none, sizes the task does not have or no row can have.

    >>> task = sequence_task("copy", vocabulary=5)
    >>> batch = task.sample(jax.random.key(0), rows=2, length=3)
    >>> task.vocab_size, task.tokens(3), batch["ids"].shape, batch["scored"].sum(axis=1).tolist()
    (9, 9, (2, 9), [4, 4])
    """
    if name not in _BUILDERS:
        raise InputError(unknown("task", name, _BUILDERS))
    _check_sizes(name, sizes)
    return _BUILDERS[name](**sizes)._replace(name=name)


def sequence_pairs(ids: Int32[ArrayLike, "rows n"]) -> Row:
    """Inputs and answers of rows `<bos> input <sep> answer <eos>`, for an encoder–decoder.

    Returns:
        `ids` `[rows, n − 1]`, the input with `<eos>` behind it, and `mask`, false on padding;
        `labels` `[rows, n − 1]`, the answer with `<eos>` behind it, 0 on padding. A decoder reads
        the labels moved by one, with `<bos>` (1) before them.

    >>> pairs = sequence_pairs(jnp.array([[1, 8, 9, 2, 9, 8, 3, 0]], jnp.int32))
    >>> pairs["ids"].tolist(), pairs["labels"].tolist()
    ([[8, 9, 3, 0, 0, 0, 0]], [[9, 8, 3, 0, 0, 0, 0]])
    """
    ids = jnp.asarray(ids)
    place = _places(ids.shape[-1])[None]
    sep = jnp.argmax(ids == SEP, axis=-1).astype(jnp.int32)[:, None]
    asked = jnp.where(place < sep, ids, jnp.where(place == sep, EOS, PADDING))[:, 1:]
    behind = jnp.take_along_axis(ids, sep + 1 + place, axis=-1, mode="fill", fill_value=PADDING)
    return {"ids": asked, "mask": asked != PADDING, "labels": behind[:, :-1]}


def sequence_tokens(name: str) -> list[str]:
    """Texts of the ids of a task of tokens with its default sizes.

    >>> sequence_tokens("scan")[:6]
    ['<pad>', '<bos>', '<sep>', '<eos>', 'walk', 'look']
    """
    words = sequence_task(name).vocab_size - FIRST_WORD
    words_of_ids = (*_COMMANDS, *_ACTIONS) if name == "scan" else [f"word{i}" for i in range(words)]
    return ["<pad>", "<bos>", "<sep>", "<eos>", *words_of_ids]


def _sampler(
    row: Callable[[Array, Array, int], Row], tokens: Callable[[int], int]
) -> Callable[..., Row]:
    """Batches of rows made of `(key, size, length)`: each of its own key and size ≤ length."""

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
        places = tokens(length)
        if places > LARGEST_SIZE:
            raise InputError(
                f"`length` is {length}, and a row is {places}; pass at most {LARGEST_SIZE:,} places"
            )
        if rows * places > _SMALL:
            what = f"`rows={rows}` of `length={length}`"
            check_bytes(_CELL * rows * places, what=what, remedy="pass fewer, or shorter ones")
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
        is_input = _places(length) < size
        x = jnp.where(is_input, _LAWS[law](key, (length,), dtype=jnp.float32), 0)
        y = jnp.where(is_input, jnp.cumsum(x), 0)
        return {"values": x[:, None], "labels": y[:, None], "mask": is_input, "scored": is_input}

    def tokens(length):
        return length

    return SequenceTask("", "numbers", causal, 0, tokens, _sampler(row, tokens))


# Tokens.


def _language(
    words: int,
    places: Callable[[int], int],
    pair: Callable[[Array, Array, int], tuple[Words, Words]],
) -> SequenceTask:
    """A task of words 0, 1, ... from pairs of input and answer; `places` of the longest pair."""

    def tokens(length):
        return places(length) + 3

    def row(key, size, length):
        return _framed(*pair(key, size, length), tokens(length))

    return SequenceTask("", "tokens", True, FIRST_WORD + words, tokens, _sampler(row, tokens))


def _framed(question: Words, answer: Words, n: int) -> Row:
    """`<bos> input <sep> answer <eos>` and padding, with labels and the places that are scored."""
    place = _places(n)
    sep = 1 + question[1]
    eos = sep + 1 + answer[1]
    asked, answered = (
        FIRST_WORD + _take(words, place - start)
        for (words, _), start in ((question, 1), (answer, sep + 1))
    )
    ids = jnp.where(place < sep, asked, answered)
    ids = jnp.where(place < eos, ids, PADDING).at[0].set(BOS).at[sep].set(SEP).at[eos].set(EOS)
    return {
        "ids": ids,
        "mask": place <= eos,
        "labels": jnp.append(ids[1:], jnp.int32(PADDING)),
        "scored": (sep <= place) & (place < eos),
    }


def _copy(*, vocabulary: int = 32) -> SequenceTask:
    return _strings(vocabulary, lambda words, size: words)


def _reverse(*, vocabulary: int = 32) -> SequenceTask:
    return _strings(vocabulary, _backwards)


def _sort(*, vocabulary: int = 32) -> SequenceTask:
    def ascending(words, size):
        return jnp.sort(jnp.where(_places(len(words)) < size, words, vocabulary))

    return _strings(vocabulary, ascending)


def _strings(vocabulary: int, function: Callable[[Array, Array], Array]) -> SequenceTask:
    """Task of uniform words; the answer is a function of them of equal length."""

    def pair(key, size, length):
        words = _draw(key, (length,), vocabulary)
        return (words, size), (function(words, size), size)

    return _language(vocabulary, lambda length: 2 * length, pair)


def _parity() -> SequenceTask:
    return _summation(base=2)


def _summation(*, base: int = 10) -> SequenceTask:
    def pair(key, size, length):
        check_range("length", length, most=LARGEST_SIZE // base)  # so that no sum overflows
        digits = _draw(key, (length,), base)
        total = jnp.sum(jnp.where(_places(length) < size, digits, 0), dtype=jnp.int32)
        return (digits, size), (total[None] % base, jnp.int32(1))

    return _language(base, lambda length: length + 1, pair)


def _addition(*, base: int = 10) -> SequenceTask:
    plus = base

    def pair(key, size, length):
        a, b = jax.vmap(lambda key: _number(key, size, length, base))(jax.random.split(key))
        total = _sum_of_digits(a, b, base)
        digits = size + (total[size] > 0).astype(jnp.int32)
        place = _places(2 * length + 1)
        left, right = (_take(_backwards(x, size), place - at) for x, at in ((a, 0), (b, size + 1)))
        asked = jnp.where(place < size, left, right).at[size].set(plus)
        return (asked, 2 * size + 1), (_backwards(total, digits), digits)

    return _language(base + 1, lambda length: 3 * length + 2, pair)


def _number(key: Array, size: Array, length: int, base: int) -> Int32[Array, " length"]:
    """A number of `size` digits, the least significant first, zeros behind."""
    place = _places(length)
    least = (place == size - 1).astype(jnp.int32)  # a leading digit is not 0
    digits = least + _draw(key, (length,), base - least)
    return jnp.where(place < size, digits, 0)


def _sum_of_digits(
    a: Int32[Array, " length"], b: Int32[Array, " length"], base: int
) -> Int32[Array, " length+1"]:
    """Add digits of two numbers, the least significant first."""
    total = a + b
    # A place whose digits add to base − 1 passes its carry on. So the carry out of a place equals
    # the carry of the nearest place below it that decides its own.
    decided = 2 * _places(len(a)) + (total >= base).astype(jnp.int32)
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
        source = _places(length)
        for function in functions:
            source = _source(function, source, size, cut)
        place = _places(length + 1)
        binary = functions[-1] >= _UNARY
        behind = (binary & (place > cut)).astype(jnp.int32)
        string = jnp.where(binary & (place == cut), comma, _take(words, place - behind))
        asked = jnp.append(vocabulary + functions, string)
        return (asked, depth + size + binary.astype(jnp.int32)), (_take(words, source), size)

    return _language(comma + 1, lambda length: depth + 1 + 2 * length, pair)


def _source(function: Array, place: Array, size: Array, cut: Array) -> Array:
    """Places of the words before the function; so the outer functions come first."""
    last = size - 1
    swapped = jnp.where(place == 0, last, jnp.where(place == last, 0, place))
    moves = [place, last - place, (place + 1) % size, swapped, place, (place + cut) % size]
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
    actions = _table(
        [
            [numbers[w] for w in (*_SIDES[side], verb.upper()) * _TIMES[times]]
            for verb, side, times in clauses
        ]
    )

    def pair(key, size, length):
        drawn = _draw(key, (length,), len(clauses))
        asked, count = _spliced(*commands, drawn, size)
        return (asked, count - 1), _spliced(*actions, drawn, size)  # no `and` behind the last

    longest = commands[0].shape[1] + actions[0].shape[1]
    return _language(len(numbers), lambda length: longest * length - 1, pair)


def _table(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as one array, and their lengths."""
    counts = np.array([len(row) for row in rows], np.int32)
    table = np.zeros((len(rows), counts.max()), np.int32)
    for padded, row in zip(table, rows, strict=True):
        padded[: len(row)] = row
    return table, counts


def _spliced(table: np.ndarray, counts: np.ndarray, rows: Array, size: Array) -> Words:
    """The first `size` of these rows of a table, one behind the other."""
    sizes = jnp.where(_places(len(rows)) < size, jnp.asarray(counts)[rows], 0)
    ends = jnp.cumsum(sizes, dtype=jnp.int32)
    place = _places(len(rows) * table.shape[1])
    nth = jnp.minimum(jnp.searchsorted(ends, place, side="right"), len(rows) - 1)
    offset = jnp.minimum(place - (ends - sizes)[nth], table.shape[1] - 1)
    return jnp.asarray(table)[rows[nth], offset], ends[-1]


def _backwards(words: Int32[Array, " length"], size: Array) -> Int32[Array, " length"]:
    """The first `size` words, the last of them first."""
    return _take(words, size - 1 - _places(len(words)))


def _draw(key: Array, shape: tuple[int, ...], below: Array | int) -> Int32[Array, "..."]:
    """Integers from 0 on, uniform up to a share of `below` / 2³²."""
    # Not `randint`: the keys and draws that bring its bias down take most of the time to compile.
    bits = jax.random.bits(key, shape, jnp.uint32)
    return (bits % jnp.asarray(below, jnp.uint32)).astype(jnp.int32)


def _places(n: int) -> Int32[Array, " n"]:
    return jnp.arange(n, dtype=jnp.int32)


def _take(words: Array, index: Array) -> Array:
    """Words at these places; those outside are some word, which nothing uses."""
    return jnp.take(words, index, mode="clip")


_BUILDERS: dict[str, Callable[..., SequenceTask]] = {
    "running_sum": partial(_running_sum, False),
    "running_sum_causal": partial(_running_sum, True),
    "copy": _copy,
    "reverse": _reverse,
    "addition": _addition,
    "sort": _sort,
    "parity": _parity,
    "summation": _summation,
    "composition": _composition,
    "scan": _scan,
}

# Names that `sequence_task` accepts.
SEQUENCE_TASKS: tuple[str, ...] = tuple(_BUILDERS)

_LEAST = {"base": 2}  # of sizes that are more than 1
# Words fit a vocabulary, and each function is a part of the program that is compiled.
_MOST = {"base": LARGEST_VOCABULARY, "vocabulary": LARGEST_VOCABULARY, "depth": 1000}
_SMALL = 2**24  # places of a batch for which memory is not looked at
_CELL = 64  # bytes for each place of a batch, with what it is made from


def _check_sizes(name: str, sizes: dict[str, int | str]) -> None:
    """The task has these sizes, each of the type of its default and large enough."""
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
        raise ValueError(f"key has dtype {key.dtype}: pass a typed one, jax.random.key(seed)")
    if key.shape:
        raise ValueError(f"key has shape {key.shape}: pass one key, or vmap over them")
