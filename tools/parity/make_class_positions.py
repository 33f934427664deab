"""Write the positions of classes without rotation to `class_positions.json.gz`.

A type is one that `families.toml` has no rotary rules for. Its kind comes from the parameters,
buffers and modules of its class. Run by hand with the newest transformers and torch: see
`README.md`.
"""

import contextlib
import gzip
import json
import sys
import tomllib
import warnings
from pathlib import Path

import transformers
from make_rope_classes import config_classes, model_classes, turns
from rope_classes.positions import measured
from rope_classes.variations import CLASSES
from transformers.utils import logging

ROOT = Path(__file__).parents[2]
OUT = ROOT / "tests" / "parity" / "class_positions.json.gz"


def main():
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    CLASSES.update(config_classes())
    families = tomllib.loads((ROOT / "jaxpe" / "plans" / "families.toml").read_text())
    judged = {*families["rotary"], *families["axial"]}
    parts = {name for name in families["composite"] if turns(name, CLASSES)}
    names = sorted({*CLASSES} - judged - parts)
    types = json.loads(gzip.decompress(OUT.read_bytes()))["types"] if sys.argv[1:] else {}
    for name in sys.argv[1:] or names:
        types[name] = {"kind": None}
        with contextlib.suppress(ImportError):  # a library that its code needs
            types[name] = measured(CLASSES[name], model_classes)
        print(name, types[name]["kind"], file=sys.stderr, flush=True)
    result = {"transformers": transformers.__version__, "types": types}
    data = json.dumps(result, sort_keys=True, separators=(",", ":")).encode()
    OUT.write_bytes(gzip.compress(data, 9, mtime=0))
    print(len(types), len(data), OUT.stat().st_size)


if __name__ == "__main__":
    main()
