"""Sequence tasks: rows are framed, lengths and keys do what they say, answers are right."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxpe._core.errors import InputError
from jaxpe.data.tasks import sequences
from jaxpe.data.tasks.sequences import (
    EOS,
    PADDING,
    SEQUENCE_TASKS,
    SequenceTask,
    sequence_pairs,
    sequence_task,
)
from tests.compilation import counted

LENGTH, ROWS = 5, 300
LANGUAGES = tuple(name for name in SEQUENCE_TASKS if not name.startswith("running_sum"))
SMALL = {
    "copy": {"vocabulary": 6},
    "reverse": {"vocabulary": 6},
    "sort": {"vocabulary": 6},
    "addition": {"base": 3},  # carries run far
    "summation": {"base": 7},
    "composition": {"vocabulary": 6, "depth": 3},
}
COMMANDS = ["walk", "look", "run", "jump", "left", "right", "twice", "thrice", "and"]
ACTIONS = ["WALK", "LOOK", "RUN", "JUMP", "LTURN", "RTURN"]
FUNCTIONS = ["copy", "reverse", "shift", "swap_first_last", "append", "prepend"]


@cache
def task(name: str) -> SequenceTask:
    """Built once, so that a program is compiled once."""
    return sequence_task(name, **SMALL.get(name, {}))


@cache
def batch(name: str, *, exact: bool = False, seed: int = 0) -> dict[str, np.ndarray]:
    drawn = task(name).sample(jax.random.key(seed), rows=ROWS, length=LENGTH, exact=exact)
    return {part: np.asarray(array) for part, array in drawn.items()}


def pairs(data: dict[str, np.ndarray]) -> list[tuple[list[int], list[int]]]:
    """Input and answer of every row, words from 0 on."""
    rows = []
    for ids, mask in zip(data["ids"], data["mask"], strict=True):
        row = ids[mask].tolist()
        sep = row.index(2)
        assert (row[0], row[-1]) == (1, 3)
        assert min(row[1:sep] + row[sep + 1 : -1]) >= 4
        rows.append(([i - 4 for i in row[1:sep]], [i - 4 for i in row[sep + 1 : -1]]))
    return rows


def number(digits: list[int], base: int) -> int:
    assert digits[0] > 0  # no leading zero
    return int("".join(map(str, digits)), base)


def composed(functions: list[str], x: list[int], y: list[int]) -> list[int]:
    """Hupkes et al. (2020), the innermost function first."""
    innermost = {"append": x + y, "prepend": y + x}
    string = innermost.get(functions[-1], x)
    for function in reversed(functions):
        if function == "reverse":
            string = string[::-1]
        elif function == "shift":
            string = string[1:] + string[:1]
        elif function == "swap_first_last" and len(string) > 1:
            string = [string[-1], *string[1:-1], string[0]]
    return string


def acted(command: str) -> list[str]:
    """Lake and Baroni (2018), clause by clause."""
    actions = []
    for clause in command.split(" and "):
        verb, *modifiers = clause.split()
        step = [verb.upper()]
        for word in modifiers:
            if word in ("left", "right"):
                step = [f"{word[0].upper()}TURN", *step]
            else:
                step = step * {"twice": 2, "thrice": 3}[word]
        actions += step
    return actions


def solve(name: str, words: list[int]) -> tuple[int, list[int]]:
    """The length of an input, in the task's own sense, and its answer."""
    size = len(words)
    if name in ("copy", "reverse", "sort"):
        return size, {"copy": words, "reverse": words[::-1], "sort": sorted(words)}[name]
    if name in ("parity", "summation"):
        return size, [sum(words) % (2 if name == "parity" else 7)]
    if name == "addition":
        at = words.index(3)
        total = number(words[:at], 3) + number(words[at + 1 :], 3)
        assert at == size - at - 1
        return at, [int(digit) for digit in np.base_repr(total, 3)]
    if name == "composition":
        functions, string = [FUNCTIONS[i - 6] for i in words[:3]], words[3:]
        binary = functions[-1] in ("append", "prepend")
        assert (12 in string) == binary
        at = string.index(12) if binary else len(string)
        x, y = string[:at], string[at + 1 :]
        assert max(x + y) < 6
        assert y or not binary or len(x) == 1  # only one word cannot be cut
        return len(x + y), composed(functions, x, y)
    command = " ".join(COMMANDS[i] for i in words)
    actions = [(COMMANDS + ACTIONS).index(action) for action in acted(command)]
    return command.split().count("and") + 1, actions


def check_rows(name: str, data: dict[str, np.ndarray], length: int) -> set[int]:
    """Rows are framed, labelled and answered; returns the lengths of the inputs."""
    shape = len(data["ids"]), task(name).tokens(length)
    kinds = {"ids": "int32", "mask": "bool", "labels": "int32", "scored": "bool"}
    found = {part: (array.shape, array.dtype.name) for part, array in data.items()}
    assert found == {part: (shape, kind) for part, kind in kinds.items()}
    ids, labels, scored = data["ids"], data["labels"], data["scored"]
    np.testing.assert_array_equal(labels[:, :-1], ids[:, 1:])
    assert (labels[:, -1] == 0).all()
    np.testing.assert_array_equal(data["mask"], ids != 0)
    assert (np.diff(data["mask"].astype(int), axis=1) <= 0).all()
    assert ids.max() < task(name).vocab_size
    sizes = set()
    for row, (question, answer) in enumerate(pairs(data)):
        size, expected = solve(name, question)
        assert answer == expected
        assert labels[row][scored[row]].tolist() == [word + 4 for word in answer] + [3]
        assert ids[row][scored[row]][0] == 2
        sizes.add(size)
    return sizes


@pytest.mark.parametrize("name", LANGUAGES)
def test_rows_are_those_of_plain_python(name):
    assert check_rows(name, batch(name), LENGTH) == set(range(1, LENGTH + 1))


def test_a_length_of_one_is_a_length():
    data = task("composition").sample(jax.random.key(1), rows=20, length=1)
    assert check_rows("composition", jax.tree.map(np.asarray, data), 1) == {1}


@pytest.mark.parametrize("exact", [False, True])
def test_running_sums_add_up(exact):
    data = batch("running_sum", exact=exact)
    kinds = {part: (array.shape, array.dtype.name) for part, array in data.items()}
    numbers, flags = ((ROWS, LENGTH, 1), "float32"), ((ROWS, LENGTH), "bool")
    assert kinds == {"values": numbers, "mask": flags, "labels": numbers, "scored": flags}
    values, labels, mask = data["values"][..., 0], data["labels"][..., 0], data["mask"]
    np.testing.assert_allclose(labels, np.where(mask, values.cumsum(axis=1), 0), atol=1e-6)
    np.testing.assert_array_equal(mask, data["scored"])
    np.testing.assert_array_equal(mask, values != 0)
    sizes = mask.sum(axis=1)
    assert set(sizes) == ({LENGTH} if exact else set(range(1, LENGTH + 1)))
    np.testing.assert_array_equal(mask, np.arange(LENGTH)[None] < sizes[:, None])


def test_laws_of_the_numbers():
    uniform = batch("running_sum", exact=True)["values"].ravel()
    assert stats.kstest(uniform, stats.uniform(-1, 2).cdf).pvalue > 1e-4
    tasks = [sequence_task("running_sum", law=law) for law in ("normal", "positive", "signs")]
    drawn = jax.jit(lambda key: [task.sample(key, rows=2000, length=1)["values"] for task in tasks])
    normal, positive, signs = map(np.ravel, drawn(jax.random.key(3)))
    assert stats.kstest(normal, stats.norm.cdf).pvalue > 1e-4
    assert stats.kstest(positive, stats.uniform.cdf).pvalue > 1e-4
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.1


def test_lengths_and_words_are_uniform_and_independent():
    questions = [question for question, _ in pairs(batch("copy"))]
    words = np.concatenate(questions)
    lengths, first = (np.array([f(q) for q in questions]) for f in (len, lambda q: q[0]))
    for values, kinds in ((lengths - 1, LENGTH), (words, 6)):
        assert stats.chisquare(np.bincount(values, minlength=kinds)).pvalue > 1e-4
    for length in range(1, LENGTH + 1):  # one key for both would draw one number twice
        assert len(np.unique(first[lengths == length])) > 4


def test_all_that_can_be_drawn_is_drawn():
    questions = [question for question, _ in pairs(batch("composition"))]
    assert {tuple(q[:2]) for q in questions} == {(6 + f, 6 + g) for f in range(4) for g in range(4)}
    assert {q[2] for q in questions} == set(range(6, 12))
    assert {q.index(12) - 3 for q in questions if 12 in q} == set(range(1, LENGTH))
    commands = [" ".join(COMMANDS[i] for i in q) for q, _ in pairs(batch("scan"))]
    assert len({clause for command in commands for clause in command.split(" and ")}) == 4 * 3 * 3


def test_the_key_decides_all_also_under_jit_and_vmap():
    def sample(key):
        return task("copy").sample(key, rows=ROWS, length=LENGTH, exact=False)

    mapped = jax.jit(jax.vmap(sample))(jax.vmap(jax.random.key)(jnp.arange(2)))
    for part, array in mapped.items():
        for seed in range(2):
            np.testing.assert_array_equal(array[seed], batch("copy", seed=seed)[part])
    assert (mapped["ids"][0] != mapped["ids"][1]).any()


def test_sampling_compiles_once(monkeypatch):
    framed, runs = counted(sequences._token_row)
    monkeypatch.setattr(sequences, "_token_row", framed)
    copy = sequence_task("copy")
    for length in (2, 2, 3):
        jax.eval_shape(partial(copy.sample, rows=2, length=length), jax.random.key(0))
    assert len(runs) == 2


def test_what_a_model_needs_to_know():
    known = {
        name: (t.kind, t.causal, t.vocab_size) for name in SEQUENCE_TASKS for t in [task(name)]
    }
    sizes = {"copy": 10, "reverse": 10, "addition": 8, "sort": 10, "parity": 6, "summation": 11}
    sizes |= {"composition": 17, "scan": 19}
    numbers = {"running_sum": ("numbers", False, 0), "running_sum_causal": ("numbers", True, 0)}
    assert known == numbers | {name: ("tokens", True, size) for name, size in sizes.items()}
    assert [task(name).name for name in SEQUENCE_TASKS] == list(SEQUENCE_TASKS)


BAD_TASKS = [
    ("cpoy", {}, "'copy'"),
    ("copy", {"base": 3}, "'base'"),
    ("sort", {"vocabulary": 0}, "`vocabulary`"),
    ("summation", {"base": 1}, "`base`"),
    ("copy", {"vocabulary": "5"}, "type int"),
    ("running_sum", {"law": "cauchy"}, "uniform, normal"),
    ("composition", {"depth": 10**9}, "at most"),
]
BAD_BATCHES = [
    (0, {}, "int64"),
    (np.zeros(2, np.uint32), {}, "uint32"),
    (jax.random.split(jax.random.key(0)), {}, "vmap"),
    (jax.random.key(0), {"rows": 0}, "`rows`"),
    (jax.random.key(0), {"length": 0}, "`length`"),
    (jax.random.key(0), {"length": 2**30}, "2147483651"),
    (jax.random.key(0), {"rows": 10**9, "length": 10**6}, "needs"),
]


@pytest.mark.parametrize(("name", "sizes", "word"), BAD_TASKS)
def test_bad_tasks_are_named(name, sizes, word):
    with pytest.raises(InputError, match=word):
        sequence_task(name, **sizes)


@pytest.mark.parametrize(("key", "sizes", "word"), BAD_BATCHES)
def test_bad_batches_are_named(key, sizes, word):
    with pytest.raises(ValueError, match=word):
        task("copy").sample(key, **({"rows": 2, "length": 2} | sizes))


def test_sums_that_would_overflow_are_refused():
    summation = sequence_task("summation", base=10_000_000)
    with pytest.raises(InputError, match="at most 214"):
        summation.sample(jax.random.key(0), rows=1, length=300)


def test_pairs_are_the_two_sides_of_rows():
    ids = batch("scan")["ids"][:20]
    found = jax.tree.map(np.asarray, jax.jit(sequence_pairs)(ids))
    for row, asked, labels in zip(ids, found["ids"], found["labels"], strict=True):
        sep, end = (int(np.flatnonzero(row == token)[0]) for token in (2, EOS))
        assert asked[asked != PADDING].tolist() == [*row[1:sep], EOS]
        assert labels[labels != PADDING].tolist() == row[sep + 1 : end + 1].tolist()
    np.testing.assert_array_equal(found["mask"], found["ids"] != PADDING)
