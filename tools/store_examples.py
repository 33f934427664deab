"""Stores results in `docs/example`, from which the site makes its example pages and front page.

    jaxpe report --out report
    jaxpe inspect SmolLM2-135M-Instruct --quick --out inspect
    python tools/store_examples.py report inspect

Numbers of arrays have the precision of float16, which figures do not show, and compress well.
"""

import json
import sys
from pathlib import Path

import numpy as np

from jaxpe._core.results import npz_bytes

EXAMPLE = Path(__file__).parents[1] / "docs" / "example"


def store(folder: Path) -> None:
    """Store the result of `jaxpe report` or `jaxpe inspect` that a folder holds."""
    (path,) = (path for path in folder.glob("*.json") if path.stem in ("report", "inspect"))
    values = json.loads(path.read_text("utf-8"))
    (EXAMPLE / path.name).write_text(json.dumps(values, separators=(",", ":")) + "\n", "utf-8")
    with np.load(path.with_suffix(".npz")) as arrays:
        short = {name: arrays[name].astype(np.float16).astype(np.float32) for name in arrays}
    (EXAMPLE / f"{path.stem}.npz").write_bytes(npz_bytes(short))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store(Path(name))
