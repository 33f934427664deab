"""Tables 1 to 4 of a theory of encodings, and a comparison of four, from computed properties.

Theirs: "Theoretical Analysis of Positional Encodings in Transformer Models" (Li 2025; some cells of
its text are lost) and "Positional Encodings via the Method of Fluxions" (Bisset 2026, Section 7).
Ours: `jaxpe encodings --about ...` for every encoding of the catalogue, at width 512, 8 heads of
64, length T = 512. "Universal" is meant of finitely many tokens, or of embeddings one can scale.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import jaxpe
from experiments.common import Run, main
from jaxpe.analysis import to_json
from jaxpe.analysis.properties import About, PropertyOptions, tabulate
from jaxpe.report import property_markdown

ABOUT: tuple[About, ...] = ("expressiveness", "generalisation", "extrapolation", "cost")
QUICK = ("sinusoidal", "learned", "shaw", "alibi", "wavelet", "legendre", "rope")


class Claim(NamedTuple):
    """A published cell: its words, whether what we computed bears it out, what we computed, why."""

    table: str
    encoding: str
    cell: str
    theirs: str
    holds: Callable[[Any], bool]
    ours: Callable[[Any], Any]
    why: str = ""


CONSTANT = "without a mask it maps a constant sequence to a constant one (Luo et al. 2022)"
PRODUCTS = "products p_i·p_j are no function of j − i"


def experiment(run: Run) -> dict[str, Any]:
    sizes = jaxpe.EncodingSizes(64, 4, 16, 64) if run.quick else jaxpe.EncodingSizes()
    dim, heads, head_dim, length = sizes
    tables = {
        about: tabulate(
            PropertyOptions(
                names=QUICK if run.quick else (),
                about=about,
                dim=dim,
                heads=heads,
                head_dim=head_dim,
                length=length,
            )
        )
        for about in ABOUT
    }
    printed = {about: property_markdown(tables[about]) for about in ABOUT}
    print(*printed.values(), sep="\n\n")
    known: dict[str, dict[str, Any]] = {}
    for about in ABOUT:
        for row in tables[about].encodings:
            known.setdefault(row.name, {"sizes": sizes})[about] = row
    claims = [judged(claim, known[claim.encoding]) for claim in CLAIMS]
    for claim in claims:
        print(*claim.values(), sep=" | ")
    return {
        "tables": {
            about: {row.pop("name"): row for row in to_json(tables[about])["encodings"]}
            for about in ABOUT
        },
        "printed": printed,
        "claims": claims,
        "reproduced": sum(claim["verdict"] == "reproduced" for claim in claims),
        "not_reproduced": sum(claim["verdict"] != "reproduced" for claim in claims),
    }


def judged(claim: Claim, known: dict[str, Any]) -> dict[str, Any]:
    holds = bool(claim.holds(known))
    return {
        "table": claim.table,
        "encoding": claim.encoding,
        "cell": claim.cell,
        "theirs": claim.theirs,
        "ours": claim.ours(known),
        "verdict": "reproduced" if holds else "not reproduced",
        "why": claim.why,
    }


def information(name: str, theirs: tuple[str, str], expected: tuple[bool, bool], why: str = ""):
    """Absolute and relative information, where Table 1 says yes or no."""
    kinds = zip(("absolute", "relative"), theirs, expected, strict=True)
    for kind, words, value in kinds:

        def ours(known, kind=kind):
            return bool(getattr(known["expressiveness"].properties, kind))

        yield Claim(
            "Li, Table 1",
            name,
            f"{kind} info",
            words,
            lambda known, ours=ours, value=value: ours(known) == value,
            ours,
            why if kind == "relative" else "",
        )


def universal(name: str, theirs: str, expected: bool, *, any_length: bool, why: str = "") -> Claim:
    """A cell of the columns "Universal", read without a mask."""
    field = "universal_any" if any_length else "universal"

    def ours(known):
        return bool(getattr(known["expressiveness"].expressiveness, field))

    cell = "universal, any n" if any_length else "universal, fixed n"
    return Claim("Li, Table 1", name, cell, theirs, lambda k: ours(k) == expected, ours, why)


def states(known: dict[str, Any]) -> list[str]:
    return [stretch.state for stretch in known["extrapolation"].stretches]


def reach(known: dict[str, Any]) -> float:
    return known["extrapolation"].reach


def norm(known: dict[str, Any]) -> float:
    return known["generalisation"].norm.value


def root_of_width(known: dict[str, Any]) -> float:
    return float(np.sqrt(known["sizes"].dim))


def parameters(known: dict[str, Any]) -> float:
    return known["generalisation"].parameters.value


def relative(known: dict[str, Any]) -> bool:
    return bool(known["expressiveness"].properties.relative)


def flops(known: dict[str, Any]) -> list[float]:
    found = known["cost"].flops
    return [found.value, found.dim, found.length]


CLAIMS = [
    *information("sinusoidal", ("Yes", "Yes"), (True, True)),
    universal("sinusoidal", "Yes", True, any_length=False),
    universal(
        "sinusoidal",
        "No",
        False,
        any_length=True,
        why="rows 512 wide do not repeat: all tried to 64 T are told apart",
    ),
    Claim(
        "Li, Table 1",
        "sinusoidal",
        "extrapolation",
        "Limited (cyclic)",
        lambda k: "repeats" in states(k),
        states,
        "single dimensions repeat, the vector does not",
    ),
    *information("learned", ("Yes", "Implicit"), (True, False), "none is built in"),
    universal("learned", "Yes", True, any_length=False),
    universal("learned", "No", False, any_length=True),
    *information("shaw", ("No", "Yes"), (False, True)),
    universal(
        "shaw",
        "Conditional",
        True,
        any_length=False,
        why="its value term is the condition, with finitely many tokens or values that scale",
    ),
    universal(
        "shaw",
        "Conditional",
        True,
        any_length=True,
        why="its value term counts tokens before and behind; differences fall as 1/n",
    ),
    *information("alibi", ("No", "Yes"), (False, True)),
    universal("alibi", "Yes", True, any_length=False, why=CONSTANT),
    universal("alibi", "Yes", True, any_length=True, why=CONSTANT),
    *information("wavelet", ("Yes / No", "Yes"), (True, True), PRODUCTS),
    *information("legendre", ("Yes / No", "Yes"), (True, True), PRODUCTS),
    Claim(
        "Li, Table 2",
        "sinusoidal",
        "norm",
        "≤ √d",
        lambda k: norm(k) <= root_of_width(k),
        norm,
        "it is √(d/2) exactly: sin² + cos² = 1 for each pair",
    ),
    Claim(
        "Li, Table 2",
        "alibi",
        "bias",
        "grows linearly in n",
        lambda k: abs(k["generalisation"].bias_beyond - 1) < 0.05,
        lambda k: [k["generalisation"].bias, k["generalisation"].bias_beyond],
    ),
    Claim(
        "Li, Table 4",
        "wavelet",
        "norm, normalised",
        "1 (constant)",
        lambda k: abs(norm(k) - 1) < 1e-5,
        norm,
    ),
    Claim(
        "Li, Table 4",
        "legendre",
        "norm",
        "≤ √d",
        lambda k: norm(k) <= root_of_width(k),
        norm,
        "far from met: P_k falls with k but at ±1, and tanh stays below 0.77 inside",
    ),
    Claim(
        "Li, Table 3",
        "sinusoidal",
        "beyond T",
        "periodic cycles",
        lambda k: "repeats" in states(k),
        states,
        "neighbours are as far apart as inside, at any position",
    ),
    Claim(
        "Li, Table 3",
        "learned",
        "beyond T",
        "undefined or constant",
        lambda k: set(states(k)) == {"undefined"},
        states,
    ),
    Claim(
        "Li, Table 3",
        "shaw",
        "beyond T",
        "clipped",
        lambda k: set(states(k)) == {"constant"},
        states,
    ),
    Claim(
        "Li, Table 3",
        "alibi",
        "beyond T",
        "linear growth",
        lambda k: all(abs(s.mean - 1) < 0.01 for s in k["extrapolation"].stretches),
        lambda k: [s.mean for s in k["extrapolation"].stretches],
    ),
    Claim(
        "Li, Table 3",
        "wavelet",
        "range",
        "moderate",
        lambda k: reach(k) >= 2,
        reach,
        "fine wavelets end within a support of T, and neighbours are alike at once",
    ),
    Claim(
        "Li, Table 3",
        "legendre",
        "range",
        "limited, moderately beyond",
        lambda k: 1 < reach(k) < 8,
        reach,
    ),
    Claim(
        "Li, Table 4",
        "legendre",
        "cost",
        "O(d) with recurrence",
        lambda k: abs(k["cost"].flops.dim - 1) < 0.1,
        flops,
    ),
    Claim(
        "Li, Table 4",
        "alibi",
        "cost",
        "O(1) per pair",
        lambda k: abs(k["cost"].flops.length - 1) < 0.1 and k["cost"].flops.dim == 0,
        flops,
    ),
    *[
        Claim(
            "Bisset, Sec. 7",
            name,
            "parameters",
            words,
            lambda k, value=value: parameters(k) == value(k["sizes"]),
            parameters,
        )
        for name, words, value in (
            ("sinusoidal", "0", lambda s: 0),
            ("learned", "max_len × d", lambda s: s.length * s.dim),
            ("rope", "0", lambda s: 0),
            ("alibi", "0", lambda s: 0),
        )
    ],
    *[
        Claim("Bisset, Sec. 7", name, "extrapolation", words, holds, reach, why)
        for name, words, holds, why in (
            ("sinusoidal", "limited", lambda k: reach(k) < 8, "defined, and as fine as inside"),
            ("learned", "none", lambda k: reach(k) <= 1, ""),
            ("rope", "good", lambda k: reach(k) >= 8, ""),
            ("alibi", "excellent", lambda k: reach(k) >= 8, ""),
        )
    ],
    *[
        Claim("Bisset, Sec. 7", name, "relative position", words, holds, relative)
        for name, words, holds in (
            ("sinusoidal", "via linear transform", relative),
            ("learned", "no", lambda k: not relative(k)),
            ("rope", "yes (native)", relative),
            ("alibi", "yes (via bias)", relative),
        )
    ],
    *[
        Claim("Bisset, Sec. 7", name, "compute", words, holds, flops, why)
        for name, words, holds, why in (
            ("sinusoidal", "+", lambda k: flops(k)[0] < 10 * k["sizes"].dim, ""),
            ("learned", "+", lambda k: flops(k)[0] < 10 * k["sizes"].dim, ""),
            ("rope", "++", lambda k: flops(k)[0] > 4 * k["sizes"].dim, ""),
            (
                "alibi",
                "+",
                lambda k: flops(k)[2] < 0.5,
                "FLOPs a token grow with n: more than RoPE's at 512",
            ),
        )
    ],
]

if __name__ == "__main__":
    main(experiment, "property_tables")
