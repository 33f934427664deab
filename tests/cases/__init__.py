"""One table of public functions with example arguments.

A row of CASES is a function of arrays: `tests/test_transforms.py` crosses it with every transform.
A row of CALLS is called twice, and compiles once.
"""

import importlib
import inspect

from jaxpe import encodings
from tests.cases.base import Call as Call
from tests.cases.base import Case as Case
from tests.cases.base import N as N
from tests.cases.calls import CALLS as CALLS
from tests.cases.geometry import GEOMETRY
from tests.cases.ntk import NTK as NTK
from tests.cases.spectral import SPECTRAL as SPECTRAL

CASES: dict[str, Case] = GEOMETRY | SPECTRAL | NTK


def constructors() -> set[str]:
    """Functions that return encodings: test_catalogue.py crosses these with every transform."""
    made = (
        *(encodings.Encoding, encodings.LayerPattern),
        encodings.Encoding | encodings.LayerPattern,
    )
    return {
        name
        for name in dir(encodings)
        if inspect.isfunction(f := getattr(encodings, name))
        if f.__annotations__.get("return") in made or name == "chain"  # of a type variable
    }


def public_functions(package: str) -> set[str]:
    """Names of the public functions of a package."""
    module = importlib.import_module(f"jaxpe.{package}")
    names = (name for name in dir(module) if name[0] != "_")
    return {name for name in names if inspect.isroutine(inspect.unwrap(getattr(module, name)))}


# Public functions without a row: on the host, of sizes or of functions alone, or made of two that
# have rows.
EXEMPT = {
    "geometry": {"stack_corpora", "token_lists", "significant_rank"},
    "encodings": constructors()
    | {"catalogue", "encoding_properties", "inverse_frequencies", "register", "rope_frequencies"},
    "spectral": set(),
    "ntk": {"solve_flow"},
}
