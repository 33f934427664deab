"""Benchmark of an encoding against others: properties, cost, stress and accuracy."""

from jaxpe.analysis.bench.job import (
    BUDGETS,
    BenchOptions,
    BenchResult,
    bench,
    bench_command,
    bench_part,
    merge_parts,
    suite_of,
)
from jaxpe.analysis.bench.measures import EncodingMeasures, measure_encodings
from jaxpe.analysis.bench.verdicts import Verdict, verdict_level, verdicts

__all__ = [
    "BUDGETS", "BenchOptions", "BenchResult", "EncodingMeasures", "Verdict", "bench",
    "bench_command", "bench_part", "measure_encodings", "merge_parts", "suite_of", "verdict_level",
    "verdicts",
]  # fmt: skip
