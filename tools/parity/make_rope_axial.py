"""Write how transformers and diffusers turn by axes to `rope_axial.json`.

It needs transformers 5.24, diffusers 0.42 and torch. For each type it makes the class's own
configuration, by default and with sizes changed, and its own rotary module, and lets its own
function turn the unit vectors of a head at a step along each axis. Of the matrix it keeps every
pair: entry, partner, and angle per unit of the position. Of the defaults it keeps every fifth pair
and how many there are.
"""

import warnings

from tools.parity.goldens import HERE, write_cases
from tools.parity.rope_axial_diffusers import diffusion_models
from tools.parity.rope_axial_towers import towers


def main():
    warnings.filterwarnings("ignore")
    cases = [*towers(), *diffusion_models()]
    write_cases(HERE / "rope_axial.json", cases, "transformers", "diffusers")


if __name__ == "__main__":
    main()
