"""Claims of `experiments/*/claims.toml`: verdicts hold of the results, quotations of the texts."""

import functools
import json
import re
import sys
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

import jaxpe
import jaxpe.theory
from experiments import claims
from jaxpe import encodings

RESULTS = claims.Results()
PAPERS = claims.folders()
CLAIMS = {claim["id"]: claim for paper in PAPERS.values() for claim in paper["claims"]}
TEXTS = ("ours", "why", "details", "because")
TOOLS = {
    "expressiveness",
    "growth",
    "lipschitz",
    "log_position_corpora",
    "mutants",
    "planted_batches",
    "position_corpora",
    "right",
    "task_measures",
    "task_models",
}
COMPARATIVE = re.compile(
    r"\b(better|best|worse|worst|more|most|less|least|fewer|fewest|larger|largest|smaller|smallest"
    r"|higher|highest|lower|lowest|faster|fastest|slower|slowest|greater|greatest|nearer|nearest"
    r"|farther|farthest|longer|longest|shorter|shortest|steeper|steepest|stronger|strongest|weaker"
    r"|weakest|sooner|earlier|beats?|wins?|ahead|behind|exceeds?|outperforms?)\b",
    re.IGNORECASE,
)
NAMES = (
    "Algorithm|Appendix|Assumption|Conjecture|Corollary|Definition|Eq|Equation|Figure|Lemma|Proposition"
    "|Remark|Sec|Section|Table|Task|Theorem|check|erratum|line"
)
NUMBER = r"\(?\d+(?:\.\d+)*\)?"
MAY_STAND = (
    r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}",
    r"`[^`]*`",
    r"\]\([^)]*\)",
    r'"[^"]*"',
    rf"\b(?:{NAMES})(?:s|as|\.)?\s+{NUMBER}(?:(?:,| and| to| or)\s+{NUMBER})*",
    r"\(\d{1,2}\)",  # an equation
    r"\b(?:19|20)\d\d\b",
)
LITERAL = re.compile(r"(?<![\w.,^])(?:\d[\d,]*\d|\d)?(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")


def literal_numbers(text):
    """Numbers that stand as text, but whole ones below 10, those of tables and sections, years."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    for pattern in MAY_STAND:
        text = re.sub(pattern, "~", text, flags=re.DOTALL)
    found = [(match[0], text[match.end() :]) for match in LITERAL.finditer(text) if match[0]]
    return {n for n, after in found if not re.fullmatch(r"\d", n) or re.match(r"\s?%", after)}


def every_text(claim):
    return [claim[key] for key in TEXTS] + [text for text, _ in claim["findings"]]


def test_pages_are_what_make_results_writes():
    pages = claims.pages()
    assert [path.name for path, text in pages.items() if path.read_text() != text] == []
    assert {path.name for path in pages} >= {"RESULTS.md", "which-encoding.md"}
    assert len((claims.EXPERIMENTS / "RESULTS.md").read_text().splitlines()) <= 200


def test_claims_have_names_of_their_own():
    assert len(CLAIMS) == sum(len(paper["claims"]) for paper in PAPERS.values())


# Predicates see their numbers: each is moved where it is stored, and the predicate must fail.

# Whole numbers that say how much was looked at are not moved: rows of a batch, random draws, layers
# of a model, tokens of a text or of several, positions that a text was moved by.
SETTINGS = {"batch", "draws", "layers", "length", "lengths", "shift"}
MOVES = (lambda x: 1e9, lambda x: -1e9, lambda x: 0.0, lambda x: 0.5 * x, lambda x: 1.5 * x)
SEEN = {}  # by the stored numbers of what is shown or compared: these, and bounds of comparisons


class Number(float):
    """A number of the results, `inside[key]`, or one computed from stored ones."""

    stored = ()
    __hash__ = float.__hash__

    def __index__(self):
        return int(self)

    def seen(self, bounds=()):
        key = tuple(map(id, self.stored))
        SEEN.setdefault(key, (self.stored, set()))[1].update(bounds)

    def __format__(self, spec=""):
        self.seen()
        return format(float(self), spec)

    __str__ = __format__


def arithmetic(name):
    def computed(*numbers):
        value = Number(getattr(float, name)(*map(float, numbers)))
        value.stored = sum((getattr(number, "stored", ()) for number in numbers), ())
        return value

    return computed


def comparison(name):
    def compared(self, other):
        by_predicate = sys._getframe(1).f_code.co_filename in ("<template>", claims.__file__)
        for number, bound in ((self, other), (other, self)):
            if by_predicate and isinstance(number, Number):
                moves = any(x is number for x in getattr(bound, "stored", ()))
                number.seen([float(bound)] if hasattr(number, "key") and not moves else [])
        return getattr(float, name)(self, other)

    return compared


COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
COMPUTE = ("add", "sub", "mul", "truediv", "pow", "radd", "rsub", "rmul", "rtruediv", "neg", "abs")
for _names, _method in ((COMPARE, comparison), (COMPUTE, arithmetic)):
    for _name in _names:
        setattr(Number, f"__{_name}__", _method(f"__{_name}__"))


def trace(value, name):
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        inner = key if isinstance(key, str) else name
        if isinstance(item, dict | list):
            trace(item, inner)
        elif type(item) is float or (type(item) is int and inner not in SETTINGS):
            number = value[key] = Number(item)
            number.inside, number.key, number.stored = value, key, (number,)
    return value


class Traced(claims.Results):
    def __missing__(self, name):
        return trace(super().__missing__(name), name)


TRACED = Traced()


def seen_by(look):
    SEEN.clear()
    look()
    return {key: (stored, set(bounds)) for key, (stored, bounds) in SEEN.items() if stored}


def fails(holds, stored=(), moves=MOVES[:1]):
    """Whether a predicate is not true after one of the moves."""
    for move in moves:
        for number in stored:
            number.inside[number.key] = move(float(number))
        try:
            held = holds() is True
        except (TypeError, ValueError, KeyError, ZeroDivisionError, jinja2.UndefinedError):
            held = False
        for number in stored:
            number.inside[number.key] = number
        if not held:
            return True
    return False


def across(bound):
    step = max(1e-6 * abs(bound), 1e-15)
    return [lambda _: bound, lambda _: bound - step, lambda _: bound + step]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_verdict_holds_of_the_results_and_of_no_others(name):
    claim = CLAIMS[name]
    assert claim["verdict"] in claims.VERDICTS
    for text, predicate in [(claim["ours"], claim["predicate"]), *claim["findings"]]:
        shown = seen_by(functools.partial(claim.render, text, TRACED))
        if claim["test"] and not predicate:
            assert not shown
            continue
        holds = functools.partial(claim.holds, predicate, TRACED)
        compared = seen_by(holds)
        assert not fails(holds), predicate
        assert not re.search(r"\b0 <= [^<]* <= 1\b", predicate)  # a guard of range says nothing
        assert compared or "select" in predicate  # a count of rows
        shown = {key: (stored, ()) for key, (stored, _) in shown.items()}
        for stored, bounds in (shown | compared).values():
            held = [bound for bound in bounds if not fails(holds, stored, across(bound))]
            assert not held, predicate
            alone = bounds or all(fails(holds, [number], MOVES) for number in stored)
            assert alone or fails(holds, stored, MOVES), (predicate, [x.key for x in stored])


@pytest.mark.parametrize("name", CLAIMS)
def test_results_are_compared_with_what_the_claim_states(name):
    """Not with a number of ours that was copied: halves apart, constants stand in the text."""
    claim = CLAIMS[name]
    text = " ".join([claim["quote"], claim["published"], *every_text(claim)])
    for predicate in filter(None, [claim["predicate"], *(p for _, p in claim["findings"])]):
        tree = claims.environment().parse(f"{{{{ {predicate} }}}}")
        calls = [x for x in tree.find_all(nodes.Call) if getattr(x.node, "name", "") == "near"]
        equal = [x.expr for x in tree.find_all(nodes.Operand) if x.op == "eq"]
        sides = [*equal, *(x.args[1] for x in calls)]
        inside = [c for x in sides for c in (x, *x.find_all(nodes.Const))]
        for value in {c.value for c in inside if isinstance(c, nodes.Const)}:
            if isinstance(value, float) and not (2 * value).is_integer():
                assert {f"{value:g}", f"{100 * value:g}"} & set(re.findall(r"[\d.]*\d", text))


@pytest.mark.parametrize("name", CLAIMS)
def test_what_compares_has_a_predicate(name):
    claim = CLAIMS[name]
    for key in TEXTS:
        for line in re.sub(r"at (least|most)", "", claim[key]).splitlines():
            prose = "" if line.startswith("|") else re.sub(r'"[^"]*"|`[^`]*`|\{.*?\}', "", line)
            assert not COMPARATIVE.search(prose), line


@pytest.mark.parametrize("name", CLAIMS)
def test_cells_are_short(name):
    claim = CLAIMS[name]
    cells = [claim["claim"], claim.text("published", RESULTS), claim.text("ours", RESULTS)]
    assert max(len(cell.split()) for cell in cells) <= 12, cells


@pytest.mark.parametrize("name", CLAIMS)
def test_numbers_of_ours_come_from_files(name):
    claim = CLAIMS[name]
    found = set().union(*map(literal_numbers, every_text(claim)))
    assert found == set(claim["given"])


@pytest.mark.parametrize("path", sorted((claims.EXPERIMENTS / "pages").glob("*.md")))
def test_numbers_of_the_site_come_from_files(path):
    text = path.read_text()
    given = [
        re.split(r",\s+|\s+", found.strip()) for found in re.findall(r"#\s*given([^:#]*)", text)
    ]
    assert literal_numbers(text) <= {number for numbers in given for number in numbers}


def plain(text):
    return " ".join(re.sub(r"[*>_$]", "", text).split())


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim["quote"]])
def test_quotations_are_word_for_word(name, data_dir):
    texts = [plain(path.read_text()) for path in sorted((data_dir.parent / "seeds").glob("*.txt"))]
    if not texts:
        pytest.skip("the texts of the papers are not beside the data")
    parts = [plain(part) for part in CLAIMS[name]["quote"].split("…")]
    assert any(all(part in text for part in parts) for text in texts), parts


def test_what_is_called_false_is_quoted():
    false = [claim for claim in CLAIMS.values() if claim["verdict"] == "false as stated"]
    assert len(false) > 12
    assert [claim["id"] for claim in false if not claim["quote"]] == []


def test_every_statement_has_a_claim_with_its_verdict():
    statements = (*jaxpe.theory.STATEMENTS, *jaxpe.theory.STATEMENTS_ON_OWN_MODELS)
    linked = {(claim["statement"], claim["verdict"]) for claim in CLAIMS.values()}
    assert {(statement.name, statement.status) for statement in statements} <= linked


def test_every_script_has_a_claim_with_its_result():
    scripts = {path.stem for path in claims.EXPERIMENTS.glob("*/*.py") if path.stem[0] != "_"}
    assert scripts - TOOLS == {claim["script"].split(".")[-1] for claim in CLAIMS.values()} - {""}
    results = {claim["result"] or claim["script"].split(".")[-1] for claim in CLAIMS.values()}
    assert results - {""} <= RESULTS.names()


def test_every_figure_shown_exists_and_is_small():
    figures = {claim["figure"] for claim in CLAIMS.values() if claim["figure"]}
    assert len(figures) > 8
    for name in figures:
        assert (claims.RESULTS / name).stat().st_size < 200_000, name


# A key of a results file is a literal of its script, of experiments that this imports or, where it
# passes on what jaxpe returns, of jaxpe. A key of several words is made of such ones.

NAMES = {  # keys below which others are names that data and packages have, or stages of a job
    "benchmark_report": {"jaxpe", "scipy"},
    "batch_checks": {"right"},
    "inspect_types": {"rows", "failed"},
    "inspected_models": {"models", "details"},
    "model_parity": {"models", "errors", "gguf", "gguf_versions"},
    "mutation": {"right"},
    "nope_constructions": {"probe"},
    "rope_agreement": {"others"},
    "rope_configurations": {"published", "reported"},
}
MODULES = {path.stem: path for path in sorted(claims.EXPERIMENTS.rglob("*.py"), reverse=True)}
IMPORT = re.compile(r"^(?:from|import) experiments[^\n(]*(?:\([^)]*\))?", re.MULTILINE)
LITERALS = r'(?<!")"([^"\n]+)"|\b(\w+)=|def (\w+)|^    (\w+): '
PASSED_ON = re.compile(r"asdict|to_json|catalogue|\.measured|inspect|__dict__|\.name\b|read_log")


@functools.cache
def literals(path):
    """Strings, names of arguments, of functions and of fields, and the words in strings."""
    found = re.findall(LITERALS, path.read_text(), re.MULTILINE)
    whole = {word for words in found for word in words if word}
    words = (re.findall(f"{form}+", word) for word in whole for form in (r"\w", "[A-Za-z]"))
    return whole.union(*words)


def sources(path, found=()):
    """A module and what it imports of the experiments."""
    words = re.findall(r"\w+", " ".join(IMPORT.findall(path.read_text())))
    for other in {MODULES[word] for word in words if word in MODULES} - {path, *found}:
        found = sources(other, {path, *found})
    return {path, *found}


def keys_below(value, parent=None):
    """Keys, each with the one above it."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            above = key if isinstance(value, dict) else parent
            yield parent, key
            yield from keys_below(inner, above)


@pytest.mark.parametrize("name", sorted(RESULTS.names()))
def test_keys_of_a_result_are_written_by_its_script(name):
    of = {c["result"] or c["script"].split(".")[-1]: c["script"] for c in CLAIMS.values()}
    paths = sources(MODULES[of.get(name, "spectral_tasks").split(".")[-1]])
    if any(PASSED_ON.search(path.read_text()) for path in paths):
        paths |= {*Path(jaxpe.__file__).parent.rglob("*.py")}
    known = {entry.name for entry in encodings.catalogue()}.union(*map(literals, paths))
    every = keys_below(RESULTS[name])
    keys = {str(key) for parent, key in every if parent not in NAMES.get(name, ())}
    one_word = {key for key in keys if re.fullmatch("[A-Za-z_]+", key)}
    made = " ".join(word for word in known if "{" in word)  # by f-strings
    fixed = tuple(re.findall("(?<=})_[a-z]{3,}|[a-z]{3,}_(?={)", made))
    unknown = {key for key in one_word - known if not key.startswith(fixed)}
    assert {key for key in unknown if not key.endswith(fixed)} == set()
    assert {x for key in keys - known - one_word for x in re.findall("[A-Za-z]+", key)} <= known


@pytest.mark.parametrize("name", sorted(RESULTS.names()))
def test_every_result_names_the_commit_that_made_it(name):
    made_by = json.loads((claims.RESULTS / f"{name}.json").read_text())["made_by"]
    assert len(made_by["commit"]) >= 7
    assert made_by.get("from") == "history" or len(made_by["sources"]) == 12


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("falls from 0.75 to 12 %", {"0.75", "12"}),
        ("in 3 % of 3 seeds, 1,024 rows and 8.8e-06", {"3", "1,024", "8.8e-06"}),
        ("Table 12 and Section 4.25, Eq. (14), Lemmas 11 to 16, (13), 2025", set()),
        ("`d = 64`, 10⁵, 8T, float32, ![a](b-12.png)", set()),
        ("{{ r.x | f('.2f') }} and {# given 44: why #}", set()),
    ],
)
def test_numbers_that_a_text_may_not_hold(line, found):
    assert literal_numbers(line) == found


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (0.7961, ".1%", "79.6 %"),
        (0.7961, ".1p", "79.6"),
        (-0.071, ".2f", "−0.07"),
        (7.1e-8, ".1es", "7.1e-8"),
        (5.7e4, ".1es", "5.7e4"),
        (None, ".2f", "–"),
    ],
)
def test_numbers_are_written_as_the_page_has_them(value, spec, text):
    assert claims.f(value, spec) == text


def test_an_interval_of_a_share_stays_within_its_bounds():
    assert claims.share({"mean": 0.9, "half": 0.36}, ".2f") == "0.90 (0.54 to 1.00)"
    seeds = {"mean": 0.9, "half": 0.36, "seeds": [0.72, 0.99, 0.99]}
    assert claims.share(seeds, ".2f") == "0.90 (0.72 to 0.99)"


def test_a_text_with_a_wrong_name_says_what_there_is():
    claim = claims.Claim(script="table_4_corpora")
    with pytest.raises(jinja2.UndefinedError, match=r"'tabel' is not in .*'sst2'"):
        claim.render("{{ r.tabel }}", RESULTS)
    with pytest.raises(jinja2.UndefinedError, match=r"'tabel' is not in .*'sst2'"):
        claim.holds("r.tabel > 1", RESULTS)
