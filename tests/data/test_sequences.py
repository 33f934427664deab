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
SUMS = tuple(name for name in SEQUENCE_TASKS if name.startswith("running_sum"))
LANGUAGES = tuple(name for name in SEQUENCE_TASKS if name not in SUMS)
FIXED = ("running_sum", "addition", "composition", "scan")  # also with rows of one length
CASES = [(name, False) for name in SEQUENCE_TASKS] + [(name, True) for name in FIXED]
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
def batch(name: str, exact: bool, seed: int = 0) -> dict[str, np.ndarray]:
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


@pytest.mark.parametrize(("name", "exact"), [case for case in CASES if case[0] in LANGUAGES])
def test_answers_are_those_of_plain_python(name, exact):
    sizes = []
    for question, answer in pairs(batch(name, exact)):
        size, expected = solve(name, question)
        assert answer == expected
        sizes.append(size)
    assert set(sizes) == ({LENGTH} if exact else set(range(1, LENGTH + 1)))


@pytest.mark.parametrize(("name", "exact"), [case for case in CASES if case[0] in LANGUAGES])
def test_labels_are_the_next_tokens_and_the_answer_is_scored(name, exact):
    data = batch(name, exact)
    n = task(name).tokens(LENGTH)
    assert {part: (a.shape, a.dtype.name) for part, a in data.items()} == {
        "ids": ((ROWS, n), "int32"),
        "mask": ((ROWS, n), "bool"),
        "labels": ((ROWS, n), "int32"),
        "scored": ((ROWS, n), "bool"),
    }
    ids, labels, scored = data["ids"], data["labels"], data["scored"]
    np.testing.assert_array_equal(labels[:, :-1], ids[:, 1:])
    assert (labels[:, -1] == 0).all()
    np.testing.assert_array_equal(data["mask"], ids != 0)
    assert (np.diff(data["mask"].astype(int), axis=1) <= 0).all()
    assert ids.max() < task(name).vocab_size
    for row, (_, answer) in enumerate(pairs(data)):
        assert labels[row][scored[row]].tolist() == [word + 4 for word in answer] + [3]
        assert ids[row][scored[row]][0] == 2


@pytest.mark.parametrize(("name", "exact"), [case for case in CASES if case[0] in SUMS])
def test_running_sums_add_up(name, exact):
    data = batch(name, exact)
    n = task(name).tokens(LENGTH)
    assert {part: (a.shape, a.dtype.name) for part, a in data.items()} == {
        "values": ((ROWS, n, 1), "float32"),
        "mask": ((ROWS, n), "bool"),
        "labels": ((ROWS, n, 1), "float32"),
        "scored": ((ROWS, n), "bool"),
    }
    values, labels, mask = data["values"][..., 0], data["labels"][..., 0], data["mask"]
    np.testing.assert_allclose(labels, np.where(mask, values.cumsum(axis=1), 0), atol=1e-6)
    np.testing.assert_array_equal(mask, data["scored"])
    np.testing.assert_array_equal(mask, values != 0)
    sizes = mask.sum(axis=1)
    assert set(sizes) == ({LENGTH} if exact else set(range(1, LENGTH + 1)))
    np.testing.assert_array_equal(mask, np.arange(n)[None] < sizes[:, None])


@pytest.mark.parametrize(
    ("law", "distribution"), [("normal", stats.norm), ("positive", stats.uniform)]
)
def test_laws_of_the_numbers(law, distribution):
    drawn = sequence_task("running_sum", law=law).sample(jax.random.key(3), rows=2000, length=1)
    assert stats.kstest(np.ravel(drawn["values"]), distribution.cdf).pvalue > 1e-4
    usual = batch("running_sum", True)["values"]
    assert stats.kstest(usual.ravel(), stats.uniform(-1, 2).cdf).pvalue > 1e-4


def test_signs_are_one_or_minus_one():
    drawn = sequence_task("running_sum", law="signs").sample(jax.random.key(3), rows=500, length=1)
    values = np.asarray(drawn["values"])[:, 0, 0]
    assert set(values.tolist()) == {-1.0, 1.0}
    assert abs(values.mean()) < 0.2


def test_lengths_and_words_are_uniform():
    questions = [question for question, _ in pairs(batch("copy", False))]
    words = np.concatenate(questions)
    for values, kinds in (([len(q) - 1 for q in questions], LENGTH), (words, 6)):
        assert stats.chisquare(np.bincount(values, minlength=kinds)).pvalue > 1e-4


def test_all_that_can_be_drawn_is_drawn():
    questions = [question for question, _ in pairs(batch("composition", True))]
    assert {tuple(q[:2]) for q in questions} == {(6 + f, 6 + g) for f in range(4) for g in range(4)}
    assert {q[2] for q in questions} == set(range(6, 12))
    assert {q.index(12) - 3 for q in questions if 12 in q} == set(range(1, LENGTH))
    commands = [" ".join(COMMANDS[i] for i in q) for q, _ in pairs(batch("scan", True))]
    assert len({clause for command in commands for clause in command.split(" and ")}) == 4 * 3 * 3
    sums = [answer for _, answer in pairs(batch("addition", True))]
    assert {len(answer) for answer in sums} == {LENGTH, LENGTH + 1}


@pytest.mark.parametrize("name", ["running_sum", "addition", "scan"])
def test_the_key_decides_all_also_under_jit_and_vmap(name):
    def sample(key):
        return task(name).sample(key, rows=ROWS, length=LENGTH)

    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    mapped = jax.jit(jax.vmap(sample))(keys)
    for part, array in mapped.items():
        for seed in range(2):
            np.testing.assert_array_equal(array[seed], batch(name, True, seed)[part])
    read = mapped["values" if task(name).kind == "numbers" else "ids"]
    assert (read[0] != read[1]).any()


@pytest.mark.parametrize("name", ["addition", "composition", "scan"])
def test_a_length_of_one_is_a_length(name):
    data = task(name).sample(jax.random.key(1), rows=20, length=1)
    assert data["ids"].shape == (20, task(name).tokens(1))
    for question, answer in pairs({part: np.asarray(array) for part, array in data.items()}):
        assert (1, answer) == solve(name, question)


def test_rows_are_the_same_without_float64():
    with jax.enable_x64(False):
        narrow = task("composition").sample(jax.random.key(0), rows=ROWS, length=LENGTH)
    for part, array in narrow.items():
        np.testing.assert_array_equal(array, batch("composition", True)[part])


def test_sampling_compiles_once(monkeypatch):
    framed, runs = counted(sequences._token_row)
    monkeypatch.setattr(sequences, "_token_row", framed)
    copy = sequence_task("copy")
    for length in (2, 2, 3):
        jax.eval_shape(partial(copy.sample, rows=2, length=length), jax.random.key(0))
    assert len(runs) == 2


def test_what_a_model_needs_to_know():
    known = {name: (t.kind, t.causal, t.vocab_size) for name in LANGUAGES for t in [task(name)]}
    assert known == {
        "copy": ("tokens", True, 10),
        "reverse": ("tokens", True, 10),
        "addition": ("tokens", True, 8),
        "sort": ("tokens", True, 10),
        "parity": ("tokens", True, 6),
        "summation": ("tokens", True, 11),
        "composition": ("tokens", True, 17),
        "scan": ("tokens", True, 19),
    }
    assert [(t.kind, t.causal, t.vocab_size) for t in map(task, SUMS)] == [
        ("numbers", False, 0),
        ("numbers", True, 0),
    ]
    assert [task(name).name for name in SEQUENCE_TASKS] == list(SEQUENCE_TASKS)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("cpoy", {}, r"unknown task 'cpoy': did you mean 'copy'\?.* running_sum, .*, scan"),
        ("xyzzy", {}, "unknown task 'xyzzy'; .* running_sum, .*, scan"),
        ("copy", {"base": 3}, "task 'copy' has no size 'base'; it has vocabulary"),
        ("scan", {"vocabulary": 3}, "task 'scan' has no size 'vocabulary'; it has none"),
        ("sort", {"vocabulary": 0}, "`vocabulary` is 0; pass at least 1"),
        ("composition", {"depth": 0}, "`depth` is 0; pass at least 1"),
        ("summation", {"base": 1}, "`base` is 1; pass at least 2"),
        ("copy", {"vocabulary": "5"}, "`vocabulary` is '5': pass a value of type int"),
        ("running_sum", {"law": 3}, "`law` is 3: pass a value of type str"),
        (
            "running_sum",
            {"law": "cauchy"},
            "`law` is 'cauchy': pass one of uniform, normal",
        ),
        ("copy", {"vocabulary": 2**32}, "`vocabulary` is 4294967296; pass at most 10,000,000"),
        ("addition", {"base": 2**40}, "`base` is 1099511627776; pass at most"),
        ("composition", {"depth": 10**9}, "`depth` is 1000000000; pass at most 1,000"),
    ],
)
def test_bad_tasks_are_named(name, sizes, message):
    with pytest.raises(InputError, match=message):
        sequence_task(name, **sizes)


@pytest.mark.parametrize(
    ("key", "sizes", "message"),
    [
        (0, {}, r"key has dtype int64"),
        (np.zeros(2, np.uint32), {}, "key has dtype uint32"),
        (jax.random.split(jax.random.key(0)), {}, r"key has shape \(2,\): pass one key, or vmap"),
        (jax.random.key(0), {"rows": 0}, "`rows` is 0; pass at least 1"),
        (jax.random.key(0), {"length": 0}, "`length` is 0; pass at least 1"),
        (jax.random.key(0), {"rows": 2**31}, "`rows` is 2147483648; pass at most"),
        (jax.random.key(0), {"length": 2**30}, "`length` is 1073741824, .*2147483651"),
        (jax.random.key(0), {"rows": 10**9, "length": 10**6}, "`rows=1000000000` of .* needs"),
    ],
)
def test_bad_batches_are_named(key, sizes, message):
    with pytest.raises(ValueError, match=message):
        task("copy").sample(key, **({"rows": 2, "length": 2} | sizes))


def test_sums_that_would_overflow_are_refused():
    summation = sequence_task("summation", base=10_000_000)
    with pytest.raises(InputError, match="`length` is 300; pass at most 214"):
        summation.sample(jax.random.key(0), rows=1, length=300)


def test_the_length_of_a_row_says_nothing_about_its_words():
    """As many words as lengths: one key for both would draw one number twice."""
    drawn = sequence_task("copy", vocabulary=8).sample(
        jax.random.key(0), rows=ROWS, length=8, exact=False
    )
    inputs = [words for words, _ in pairs(jax.tree.map(np.asarray, drawn))]
    lengths, first = (np.array([f(words) for words in inputs]) for f in (len, lambda w: w[0]))
    for length in range(1, 9):
        assert len(np.unique(first[lengths == length])) > 4


def test_pairs_are_the_two_sides_of_rows():
    for name in ("reverse", "scan"):
        rows = sequence_task(name).sample(jax.random.key(3), rows=20, length=3, exact=False)
        found = {k: np.asarray(v) for k, v in sequence_pairs(rows["ids"]).items()}
        for row, ids, labels in zip(
            np.asarray(rows["ids"]), found["ids"], found["labels"], strict=True
        ):
            sep, end = (int(np.flatnonzero(row == token)[0]) for token in (2, EOS))
            assert ids[ids != PADDING].tolist() == [*row[1:sep], EOS]
            assert labels[labels != PADDING].tolist() == row[sep + 1 : end + 1].tolist()
        np.testing.assert_array_equal(found["mask"], found["ids"] != PADDING)
