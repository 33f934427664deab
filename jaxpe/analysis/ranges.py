"""What audits and spectra may be asked for; checked before anything is read."""

from jaxpe._core.memory import check_bytes
from jaxpe._core.options import LARGEST_SIZE, check_range, check_seed

LENGTH = 64  # positions, where none are asked for
MOST_POSITIONS = 4096  # of an audit, whose matrices of positions are dense
MOST_STEPS = 1_000_000  # each is kept in the report
LEAST_ROWS = 4  # positions and documents of spectra
_MATRICES = 8  # of all pairs of positions: sums of halves, in parts and in random order


def check_audit(*, examples: int, length: int | None, steps: int, seed: int) -> None:
    """Refuse what cannot be audited.

    Raises:
        InputError: names the option and what to pass.

    >>> check_audit(examples=0, length=64, steps=40, seed=0)
    Traceback (most recent call last):
    jaxpe.InputError: `examples` is 0; pass at least 1
    """
    check_range("examples", examples, least=1, most=LARGEST_SIZE)
    check_range("length", length, least=3, most=MOST_POSITIONS)
    check_range("steps", steps, least=1, most=MOST_STEPS)
    check_seed("seed", seed)


def check_spectral(
    *, examples: int, length: int | None, seed: int, layers: int = 1, heads: int = 1
) -> None:
    """Refuse what has no spectra, or more than memory holds of the layers and heads known.

    Raises:
        InputError: names the option and what to pass.

    >>> check_spectral(examples=64, length=3, seed=0)
    Traceback (most recent call last):
    jaxpe.InputError: `length` is 3; pass at least 4
    """
    check_range("examples", examples, least=LEAST_ROWS, most=LARGEST_SIZE)
    check_range("length", length, least=LEAST_ROWS, most=LARGEST_SIZE)
    check_seed("seed", seed)
    needed = 4 * _MATRICES * layers * heads * (length or LENGTH) ** 2
    check_bytes(needed, what=f"`length={length or LENGTH}`", remedy="pass a smaller one")
