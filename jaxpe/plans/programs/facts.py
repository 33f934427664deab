"""Facts about programs by model type or GGUF architecture, from `programs.toml`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jaxpe.plans.families import Family


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("programs.toml").read_text("utf-8"))


def program_facts(program: str) -> Mapping[str, Any]:
    """Facts about a program: "transformers", "vllm", "sglang" or "llama_cpp"; or "programs"."""
    return _table()[program]


def find_architecture(name: str) -> Family | None:
    """Rules of an architecture in llama.cpp; None for an unknown architecture.

    >>> llama, bert = find_architecture("llama"), find_architecture("bert")
    >>> llama.pairing, bert.kind, find_architecture("x")
    ('interleaved', 'table', None)
    """
    facts = program_facts("llama_cpp")
    kind = next((kind for kind, names in facts["kinds"].items() if name in names), None)
    if kind is not None:
        return Family(name, kind=kind, reads=facts["reads"])
    pairing = next((pairs for pairs in ("interleaved", "half") if name in facts[pairs]), None)
    if pairing is None:
        return None
    row: dict[str, Any] = {
        "pairing": pairing,
        "reads": facts["reads"],
        "latent": name in facts["latent"],
    }
    if name in facts["windows"]:
        row["heads"] = {"sliding_attention": "swa_head_dim"}
    if name in facts["turning_every"]:
        row["unturned"] = "no_rope_layers"
    return Family(name, **row | facts["rows"].get(name, {}))
