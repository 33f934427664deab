"""`jaxpe rope`."""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jaxpe._core.options import Output
from jaxpe.plans import RopeOptions

NOT_JUDGED = 3  # exit code


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainOptions(Output, RopeOptions):
    """Explain what each layer of a model does with positions, and where programs disagree.

    Attributes:
        json: print only the result, as JSON.
        out: folder to write rope.html, rope.json and figures to.
    """

    json: bool = False
    out: Path | None = None  # type: ignore[assignment]


def explain(options: ExplainOptions, words: Sequence[str]) -> None:
    """Read the configuration, print the result, and write the page if `--out` is given."""
    from jaxpe._core.json_values import to_json  # late: a help needs no NumPy
    from jaxpe.cli.pages import show, write
    from jaxpe.cli.parsing import plain
    from jaxpe.plans import explain_rope

    started = time.monotonic()
    analysis = explain_rope(plain(options, RopeOptions))
    if options.out is not None:
        write(analysis, options, words)
    if options.json:
        print(json.dumps(to_json(analysis), indent=2))
    else:
        show(analysis, options, options.out, started)
    if analysis.status != "judged":
        sys.exit(NOT_JUDGED)
