"""Write the positions of classes without rotation to `class_positions.json.gz`.

A type is one that `families.toml` has no rotary rules for. Its kind comes from the parameters,
buffers and modules of its class. It needs the newest transformers and torch: see `README.md`.
"""

import contextlib
import gzip
import json
import sys
import warnings

from transformers.utils import logging

from tools.parity.goldens import HERE, families, versions, write_compressed
from tools.parity.make_rope_classes import config_classes, model_classes, turns
from tools.parity.rope_classes.positions import measured
from tools.parity.rope_classes.variations import CLASSES

OUT = HERE / "class_positions.json.gz"


def main():
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    CLASSES.update(config_classes())
    judged = {*families()["rotary"], *families()["axial"]}
    parts = {name for name in families()["composite"] if turns(name, CLASSES)}
    names = sorted({*CLASSES} - judged - parts)
    types = json.loads(gzip.decompress(OUT.read_bytes()))["types"] if sys.argv[1:] else {}
    for name in sys.argv[1:] or names:
        types[name] = {"kind": None}
        with contextlib.suppress(ImportError):  # a library that its code needs
            types[name] = measured(CLASSES[name], model_classes)
        print(name, types[name]["kind"], file=sys.stderr, flush=True)
    write_compressed(OUT, {**versions("transformers"), "types": types})


if __name__ == "__main__":
    main()
