"""One table: every public function of arrays with example arguments.

`tests/test_transforms.py` crosses it with every transform, `tests/test_compiles_once.py` takes its
names, and `tests/hardening/fuzz.py` spoils its arguments.
"""

import inspect

import jaxpe
from tests.cases.base import Case as Case
from tests.cases.base import N as N
from tests.cases.geometry import GEOMETRY
from tests.cases.ntk import NTK as NTK
from tests.cases.spectral import SPECTRAL as SPECTRAL

CASES: dict[str, Case] = GEOMETRY | SPECTRAL | NTK

# Public functions without a row, and why.
EXEMPT = {
    "compare_geometries": "eager: counts are thinned on the host, to sizes that depend on them",
    "empty_counts": "sizes in, zeros out",
    "pad_documents": "ragged Python lists in, NumPy out",
    "stack_corpora": "corpora of different shapes in, NumPy out",
    "inverse_frequencies": "a float64 NumPy constant, made at trace time",
    "rope_frequencies": "float64 NumPy constants, made at trace time",
    "position_bins": "NumPy edges, made at trace time",
    "alibi_slopes": "a float64 NumPy constant, made at trace time",
    "rotary_permutation": "NumPy indices, made at trace time",
    "rope_to_hf": "a dictionary of settings",
    "catalogue": "a table of constructors",
    "register": "a decorator of constructors",
    "resolve": "a row of the table of constructors",
    "encoding_properties": "looks at compiled programs and at numbers known when tracing",
    "encoding_extrapolation": "looks at compiled programs or at numbers known when tracing",
    "encoding_expressiveness": "looks at compiled programs or at numbers known when tracing",
    "encoding_cost": "looks at compiled programs or at numbers known when tracing",
    "encoding_generalisation": "looks at compiled programs or at numbers known when tracing",
}


def constructors() -> set[str]:
    """Functions that return encodings: test_catalogue.py crosses these with every transform."""
    made = (
        *(jaxpe.Encoding, jaxpe.encodings.LayerPattern),
        jaxpe.Encoding | jaxpe.encodings.LayerPattern,
    )
    return {
        name
        for name in dir(jaxpe.encodings)
        if inspect.isfunction(f := getattr(jaxpe.encodings, name))
        if f.__annotations__.get("return") in made
    }


def public_functions() -> set[str]:
    """Names of functions of arrays; what constructors make is tested elsewhere."""
    names = {*jaxpe.geometry.__all__, *jaxpe.encodings.__all__}
    return {
        name
        for name in names - constructors()
        if name[0] != "_"
        and callable(f := getattr(jaxpe.geometry, name, None) or getattr(jaxpe.encodings, name))
        and not isinstance(f, type)
        if "Literal" not in str(f)
    }
