"""What `jaxpe report` costs: its stages against SciPy, whole commands, and an older checkout.

    python -m experiments.benchmarks.report [--only PART ...] [--against DIR] [--rounds N] [--save]

Parts, of which --save keeps those that were not run:

- `commands`: `jaxpe report` in fresh processes, on three corpora: cold, warm, and with programs
  that a report on the standard library compiled.
- `against`: the command of this checkout and of another (`git worktree add DIR COMMIT`), on the
  standard library, in turns. It runs where DIR is given.
- `stages`: `analyse_tokens` against a script of the same main numbers (`_scipy_report.py`), on
  8,192 documents of IMDB as WordPiece, cut to 128 tokens; then with a fourth and a sixteenth of
  the documents, of the tokens of each, and of the vocabulary, whose other words become one.
  Programs are compiled before.

Needs JAXPE_DATA_DIR. Clocks are of a machine that other work may share; CPU seconds depend less on
it.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import _contest as contest
from experiments.benchmarks._scipy_report import Script
from experiments.provenance import git
from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.analysis.corpus.documents import compacted
from jaxpe.data import TokenCorpus, load_tokens

FRACTIONS = (16, 4, 1)
LENGTH, DOCUMENTS, LEAST_RUNS = 128, 8_192, 5
KINDS = ("clock", "cpu")
AXES = {"documents": 0, "length": 1, "vocabulary": 2}
VOCABULARY = Path(os.environ.get("JAXPE_DATA_DIR", ".")) / "bert-base-uncased" / "vocab.txt"
COMMANDS = {
    "stdlib": "report stdlib --out {out}",
    "sst2": f"report sst2 --tokenizer {VOCABULARY} --out {{out}}",
    "imdb": f"report imdb --tokenizer {VOCABULARY} --length 256 --out {{out}}",
}
Found = dict[str, Any]


class Stages:
    """Clock and CPU seconds of the stages that `analyse_tokens` or the script announces."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = {}
        self._name, self._begun = "", {"clock": 0.0, "cpu": 0.0}

    def track(self, items: Iterable, description: str, *, total: int | None = None) -> Iterable:
        return items

    def say(self, line: str) -> None:
        """End the stage before, and begin the one of "stage 1 of 7: counting (0 s so far)"."""
        now = {"clock": time.perf_counter(), "cpu": time.process_time()}
        if self._name:
            self.seconds[self._name] = {kind: now[kind] - self._begun[kind] for kind in KINDS}
        self._name, self._begun = line.partition(": ")[2].partition(" (")[0], now


# Stages, against SciPy.


def stages(options: Any) -> Found:
    """Seconds of both at each size, and how they grow; numbers of both at the full size."""
    length = 32 if options.quick else LENGTH
    limit = 2_048 if options.quick else DOCUMENTS
    whole = load_tokens("imdb", tokenizer=VOCABULARY, length=length, limit=limit)
    corpora = {
        "documents": {of: whole.chosen(np.arange(len(whole.ids)) % of == 0) for of in FRACTIONS},
        "length": {of: shortened(whole, length // of) for of in FRACTIONS},
        "vocabulary": {of: frequent(whole, whole.vocab_size // of) for of in FRACTIONS},
    }
    full = compare(whole, options.rounds)
    found: Found = {"tokens": int(whole.mask.sum()), "full": full, "growth": {}}
    for what, sizes in corpora.items():
        rows = [full if of == 1 else compare(sizes[of], options.rounds) for of in FRACTIONS]
        found["growth"][what] = {
            "sizes": [(*x.ids.shape, x.vocab_size)[AXES[what]] for x in sizes.values()],
            "rank": [row["rank"] for row in rows],
            "seconds": {
                name: [
                    {kind: sum(stage[kind] for stage in row[name].values()) for kind in KINDS}
                    for row in rows
                ]
                for name in ("jaxpe", "scipy")
            },
        }
    return found


def shortened(corpus: TokenCorpus, n: int) -> TokenCorpus:
    return corpus._replace(ids=corpus.ids[:, :n], mask=corpus.mask[:, :n], cut=None)


def frequent(corpus: TokenCorpus, vocab: int) -> TokenCorpus:
    """The most frequent words, and all others as one."""
    order = np.argsort(-np.bincount(corpus.ids[corpus.mask], minlength=corpus.vocab_size))
    rank = np.argsort(order)
    ids = np.minimum(rank[corpus.ids], vocab - 1).astype(np.int32)
    tokens = [corpus.tokens[word] for word in order[:vocab]]
    exclude = tuple(int(rank[word]) for word in corpus.exclude if rank[word] < vocab - 1)
    return corpus._replace(ids=ids, vocab_size=vocab, tokens=tokens, exclude=exclude)


def compare(corpus: TokenCorpus, rounds: int) -> Found:
    """Medians of clock and CPU seconds by stage, of both in turns, and the numbers of both."""
    results: Found = {}

    def run(name: str, work: Callable[[Stages], Any]) -> dict[str, dict[str, float]]:
        progress = Stages()
        results[name] = work(progress)
        progress.say("")
        return progress.seconds

    def script(progress: Stages) -> Found:
        progress.say(": counting")
        compact, _ = compacted(corpus)
        return Script(compact, compact.groups(), progress).report()

    runs: contest.Contestants = {
        "scipy": partial(run, "scipy", script),
        "jaxpe": partial(run, "jaxpe", lambda progress: analyse_tokens(corpus, progress=progress)),
    }
    runs["jaxpe"]()  # compiles
    taken = contest.take_turns(runs, rounds)
    ours, theirs = results["jaxpe"], results["scipy"]
    numbers = {
        "rank": (ours.position.significant_rank, theirs["rank"]),
        "trace": (ours.position.trace, theirs["trace"]),
        "held out": ([x.estimate for x in ours.held_out.own], theirs["held out"]),
    }
    seconds = {name: contest.medians_over(each) for name, each in taken.items()}
    return seconds | {
        name: dict(zip(("jaxpe", "scipy"), pair, strict=True)) for name, pair in numbers.items()
    }


# Whole commands.


def commands(options: Any) -> Found:
    """Medians over rounds of each corpus: cold, warm, and after a report on another."""
    names = ["stdlib"] if options.quick else list(COMMANDS)
    rounds: dict[str, list[Found]] = {name: [] for name in names}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                rounds[name].append(states(name, Path(folder)))
                print(name, json.dumps(rounds[name][-1]), flush=True)
    return {name: contest.medians_over(found) for name, found in rounds.items()}


def states(name: str, folder: Path) -> Found:
    """One run of each state; the folder has what the cold run on "stdlib" left."""
    own, other = folder / name, folder / "stdlib after cold"
    found = {"cold": contest.command(COMMANDS[name], own)}
    if name == "stdlib":
        shutil.copytree(own, other)
    else:
        same = folder / "stdlib"  # JAX's keys of stored programs depend on the path
        shutil.rmtree(same)
        found["after stdlib"] = contest.command(COMMANDS[name], shutil.copytree(other, same))
    return found | {"warm": contest.command(COMMANDS[name], own)}


# Against another checkout.


def against(options: Any) -> Found:
    """Quartiles of this checkout's seconds over those of another, cold and warm."""
    other = Path(options.against).resolve()
    checkouts = {"before": other, "after": contest.ROOT}

    def cold_and_warm(checkout: Path) -> list[list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            run = partial(contest.command, COMMANDS["stdlib"], Path(folder), checkout=checkout)
            return [[found[kind] for kind in KINDS] for found in (run(), run())]

    runs = {name: partial(cold_and_warm, path) for name, path in checkouts.items()}
    taken = contest.take_turns(runs, 1 if options.quick else max(options.rounds, LEAST_RUNS))
    ratios = taken["after"] / taken["before"]  # [rounds, cold and warm, clock and CPU]
    return {
        "commit": git("rev-parse", "--short=7", "HEAD", folder=other),
        "rounds": len(ratios),
        "ratios": {
            state: {kind: contest.quartiles(ratios[:, i, k]) for k, kind in enumerate(KINDS)}
            for i, state in enumerate(("cold", "warm"))
        },
    }


PARTS: dict[str, Callable[[Any], Found]] = {
    "commands": commands, "against": against, "stages": stages,
}  # fmt: skip


def main() -> None:
    options = contest.options_of(__doc__, rounds=3, only=tuple(PARTS), against=None)
    parts = [name for name in options.only if name != "against" or options.against]
    found = contest.earlier("report", options)
    for name in parts:
        found[name] = PARTS[name](options)
        print(name, json.dumps(found[name], default=float), flush=True)
    contest.finish("report", options, found | {"machine": contest.machine("scipy")})


if __name__ == "__main__":
    main()
