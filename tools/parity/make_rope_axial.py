"""Write how transformers and diffusers turn by axes to `rope_axial.json`.

Run by hand, with transformers 5.24, diffusers 0.42 and torch:

    python tools/parity/make_rope_axial.py

For each type it makes the class's own configuration, by default and with sizes changed, and its own
rotary module, and lets its own function turn the unit vectors of a head at a step along each axis.
Of the matrix it keeps every pair: entry, partner, and angle per unit of the position. Of the
defaults it keeps every fifth pair and how many there are.
"""

import json
import warnings
from pathlib import Path

from rope_axial_models import diffusion_models
from rope_axial_towers import towers

OUT = Path(__file__).parents[2] / "tests" / "parity" / "rope_axial.json"


def main():
    import diffusers
    import transformers

    warnings.filterwarnings("ignore")
    versions = {"transformers": transformers.__version__, "diffusers": diffusers.__version__}
    cases = [*towers(), *diffusion_models()]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f'{{"versions": {json.dumps(versions)}, "cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases of {len({case['type'] for case in cases})} types")


if __name__ == "__main__":
    main()
