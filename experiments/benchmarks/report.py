"""`jaxpe report` from text to page on SST-2 and IMDB: where the time goes.

Run `python -m experiments.benchmarks.report [--save]` with JAXPE_DATA_DIR set. Absolute seconds of
one machine say little; the shares of the stages do, and the ratio of a corrected to a plug-in
analysis, which is what the honesty about noise costs.
"""

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import jax

from experiments.benchmarks._machine import write_result
from jaxpe.analysis.corpus import analyse_tokens
from jaxpe.data import load_tokens
from jaxpe.report import write

OUT = Path(__file__).parent.parent / "results" / "benchmark_report.json"
LENGTHS = {"sst2": 64, "imdb": 256}


def stages(source: str, vocabulary: Path) -> dict[str, float]:
    """Seconds of every stage of one report at the default options."""
    start = time.perf_counter()
    corpus = load_tokens(source, tokenizer=vocabulary, special=True, length=LENGTHS[source])
    read = time.perf_counter()
    analysis = analyse_tokens(corpus)
    drawn = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        write(analysis, folder)
    seconds = {"read and tokenize": read - start} | analysis.seconds
    return seconds | {"figures and page": time.perf_counter() - drawn}


def main() -> None:
    vocabulary = Path(os.environ["JAXPE_DATA_DIR"]) / "bert-base-uncased" / "vocab.txt"
    result: dict[str, object] = {
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, {platform.machine()}"
    }
    for source in LENGTHS:
        seconds = stages(source, vocabulary)
        noise = sum(seconds[stage] for stage in ("permutation null", "bootstrap"))
        result[source] = {
            "seconds": {stage: round(value, 2) for stage, value in seconds.items()},
            "total": round(sum(seconds.values()), 1),
            "null and intervals over geometry": round(noise / seconds["geometry"], 1),
        }
    print(json.dumps(result, indent=2))
    if "--save" in sys.argv:
        write_result(OUT, result)


if __name__ == "__main__":
    main()
