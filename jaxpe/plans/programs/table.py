"""Programs that `jaxpe rope` compares, newest transformers first."""

from functools import partial
from typing import Any

from jaxpe._core.errors import InputError
from jaxpe.plans.configuration import Form
from jaxpe.plans.programs import llama_cpp, sglang
from jaxpe.plans.programs.base import Program
from jaxpe.plans.programs.facts import program_facts
from jaxpe.plans.programs.shared import fixed_pairing, served_queries, stored_logit_factor
from jaxpe.plans.programs.transformers import (
    logit_factor,
    logit_factor_4,
    query_scaling,
    transformers_4,
    transformers_5,
)
from jaxpe.plans.programs.vllm import longest, vllm

# Longest text, query scaling, pairing: checkpoints are made for the pairing of transformers.
_TRANSFORMERS = (lambda model: float(model.context), query_scaling, lambda model, group: None)
_VLLM = partial(served_queries, "vllm"), partial(fixed_pairing, "vllm")
_SGLANG = partial(served_queries, "sglang"), partial(fixed_pairing, "sglang")
_LLAMA_CPP = llama_cpp.longest, llama_cpp.query_scaling, llama_cpp.pairing

# Functions of each program: entries, factor on logits, longest text, query scaling, pairing.
_FUNCTIONS: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "transformers 5.24": (transformers_5, logit_factor, *_TRANSFORMERS),
    "transformers 4.57": (transformers_4, logit_factor_4, *_TRANSFORMERS),
    "vLLM 0.33": (vllm, stored_logit_factor, longest, *_VLLM),
    "SGLang 0.5.23": (sglang.sglang, stored_logit_factor, sglang.longest, *_SGLANG),
    "llama.cpp": (llama_cpp.llama_cpp, stored_logit_factor, *_LLAMA_CPP),
}
# Programs that `jaxpe rope` compares; the first is the reference.
PROGRAMS: tuple[Program, ...] = tuple(
    Program(
        name, row["versions"], row["date"], row["evidence"], *_FUNCTIONS[name], tuple(row["traits"])
    )
    for name, row in program_facts("programs").items()
)


def choose_programs(names: str | None, form: Form) -> tuple[Program, ...]:
    """Programs to compare for a file: the named programs, or all.

    A GGUF file has one program, llama.cpp.

    Args:
        names: programs, with a version if there are several, such as "vLLM,transformers 4"; case
            does not matter.
        form: kind of the file.

    Raises:
        InputError: a name that matches no program.

    >>> [program.name for program in choose_programs("vllm, transformers 4", "config.json")]
    ['transformers 4.57', 'vLLM 0.33']
    """
    programs = [one for one in PROGRAMS if form != "gguf" or one.entries is llama_cpp.llama_cpp]
    if names is None:
        return tuple(programs)
    chosen = set[str]()
    for name in names.lower().split(","):
        prefixes = (f"{name.strip()} ", f"{name.strip()}.")
        found = {one.name for one in programs if f"{one.name.lower()} ".startswith(prefixes)}
        if not found:
            listed = ", ".join(f"{one.name} ({one.versions})" for one in programs)
            raise InputError(f"`programs`: no rules for {name!r}; pass some of {listed}")
        chosen |= found
    return tuple(one for one in programs if one.name in chosen)
