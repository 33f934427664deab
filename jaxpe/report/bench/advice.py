"""Step to take after a benchmark."""

from jaxpe.analysis.bench import BenchResult, bench_command
from jaxpe.analysis.extrapolation import MOST_SEEDS
from jaxpe.report.text import Advice, plural

_MANY = 20  # seeds for which the next budget is advised instead
_UNDECIDABLE = f"The others may need over {MOST_SEEDS}. "
_NEXT = {"smoke": "small", "small": "medium"}  # budgets


def verdict_counts(result: BenchResult) -> dict[str, int]:
    """Number of comparisons with each verdict."""
    said = [one.verdict for one in result.verdicts]
    return {word: said.count(word) for word in dict.fromkeys(said)}


def advice(result: BenchResult) -> list[Advice]:
    """Step to take: a larger budget where tasks are not learned, more seeds where undecided."""
    options, counts = result.options, verdict_counts(result)
    larger = _NEXT.get(options.budget)
    seeds = max((one.seeds for one in result.verdicts), default=0)
    if counts.get("not learned") and larger:
        why = f"{plural(counts['not learned'], 'comparison')} found a task not learned at T"
        return [_rerun(f"{why}: train longer.", result, budget=larger, steps=None)]
    if seeds and not (larger and seeds > _MANY):
        few, open_ = sum(one.seeds > 0 for one in result.verdicts), counts["not decided"]
        which = plural(few, "open comparison") if few == open_ else f"{few} of {open_} open ones"
        text = (
            f"About {seeds} seeds would decide {which}, at the present mean and spread. "
            f"{_UNDECIDABLE if few < open_ else ''}Another seed draws all of them anew."
        )
        return [_rerun(text, result, seeds=seeds, seed=options.seed + 1)]
    if larger:
        return [
            _rerun("Small models may rank otherwise: try the next budget.", result, budget=larger)
        ]
    train = f"jaxpe train YOUR_CORPUS --encoding {options.encoding}"
    return [Advice("These are small models: train on your own corpus to decide.", train)]


def _rerun(text: str, result: BenchResult, **changes: str | int | None) -> Advice:
    """The same comparison with a change, in a folder of its own."""
    folder = "-".join(["bench", *(str(x) for name, x in changes.items() if x and name != "seed")])
    return Advice(text, bench_command(result.options, **changes, out=folder))
