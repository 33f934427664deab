"""Write the keys of a scaling entry that each program reads to `jaxpe/plans/programs/keys.toml`.

Run by hand, with the folders of the unpacked sources: the packages transformers of versions 5 and
4, vllm and sglang, and a checkout of llama.cpp:

    python tools/make_rope_keys.py TRANSFORMERS TRANSFORMERS_4 VLLM SGLANG LLAMA_CPP

No source is imported. A key is read where an expression such as `rope_scaling["key"]`,
`rope_parameters.get("key")`, `"key" in rope_parameters` or a comprehension over its items names it.
Rotary code that all models share gives keys by type of the scaling, from the function or the branch
that they stand in, or for every type. Keys that only code of single models reads stand apart.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parents[1] / "jaxpe" / "plans" / "programs" / "keys.toml"
# Shared code of each program, and code of single models.
PLACES = {
    "transformers": (["modeling_rope_utils.py"], ["models"]),
    "transformers_4": (["modeling_rope_utils.py"], ["models"]),
    "vllm": (
        ["model_executor/layers/rotary_embedding", "transformers_utils/config.py", "config"],
        ["model_executor/models", "transformers_utils/configs"],
    ),
    "sglang": (
        ["srt/layers/rotary_embedding", "srt/configs/model_config.py"],
        ["srt/models", "srt/configs"],
    ),
    "llama_cpp": (["conversion/base.py"], ["conversion"]),
}
# The converter of llama.cpp writes these, and among its graphs that of Grok alone reads them.
WRITTEN_ONLY = {"extrapolation_factor", "attention_factor", "attn_factor"}
ENTRY = re.compile(r"(^|\.|_)rope_?(scaling|param|params|parameters)(_dict)?(_layer_type)?$")
FUNCTION = re.compile(
    r"_(?:compute|bailing)_(\w+?)(?:_scaling|_ntk)?(?:_rope)?_(?:parameters|kwargs)$"
)
CHECK = re.compile("validat")  # functions that only warn
EVERY = "every"


def is_entry(node: ast.AST) -> bool:
    """Whether an expression is a scaling entry, by its name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name | ast.Attribute) and bool(ENTRY.search(ast.unparse(node)))


def text(node: ast.AST) -> list[str]:
    """Constant texts of a node, or of a tuple or list."""
    nodes = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    values = [one.value for one in nodes if isinstance(one, ast.Constant)]
    return [one for one in values if isinstance(one, str)]


def keys_of(node: ast.AST) -> list[str]:
    """Keys that one expression reads."""
    match node:
        case ast.Subscript(value=entry, slice=key, ctx=ast.Load()) if is_entry(entry):
            return text(key)
        case ast.Call(func=ast.Attribute(value=entry, attr="get" | "pop"), args=[key, *_]):
            return text(key) if is_entry(entry) else []
        case ast.Call(args=[entry, key, *_]) if is_entry(entry):
            return text(key)
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[entry]):
            return text(key) if is_entry(entry) else []
        case ast.comprehension(iter=ast.Call(func=ast.Attribute(value=entry, attr="items"))):
            tests = (test for test in node.ifs if isinstance(test, ast.Compare))
            return [k for t in tests for k in text(t.comparators[0])] if is_entry(entry) else []
    return []


def types_of(node: ast.AST) -> list[str]:
    """Types of scalings that the body of a function or a branch is for."""
    match node:
        case ast.FunctionDef(name=name) if found := FUNCTION.search(name):
            return [found[1]]
        case ast.FunctionDef(body=body):
            asserted = (one.test for one in body if isinstance(one, ast.Assert))
            named = (ast.If(test=test, body=[], orelse=[]) for test in asserted)
            return next(filter(None, map(types_of, named)), [])
        case ast.If(test=ast.Compare(left=left, ops=[ast.Eq() | ast.In()], comparators=[value])):
            return text(value) if ast.unparse(left).endswith("type") else []
    return []


def read_keys(node: ast.AST, types: list[str]) -> Iterator[tuple[str, str]]:
    """Types and keys that the code under a node reads."""
    if isinstance(node, ast.FunctionDef) and CHECK.search(node.name):
        return
    for key in keys_of(node):
        yield from ((one, key) for one in types)
    own = types_of(node) or types
    inner = node.body if own is not types and isinstance(node, ast.If | ast.FunctionDef) else []
    for child in ast.iter_child_nodes(node):
        yield from read_keys(child, own if child in inner else types)


def keys_in(folder: Path, places: list[str]) -> dict[str, set[str]]:
    """Keys by type that the Python files of some places read."""
    found: dict[str, set[str]] = {}
    for place in (folder / one for one in places):
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            for kind, key in read_keys(ast.parse(path.read_text("utf-8")), [EVERY]):
                found.setdefault(kind, set()).add(key)
    return found


def main() -> None:
    lines = ["# Keys of a scaling entry that programs read, by type of the scaling; written by"]
    lines += ["# tools/make_rope_keys.py. every: of all types; models: by code of single models."]
    for (program, (shared, single)), folder in zip(PLACES.items(), sys.argv[1:], strict=True):
        keys = keys_in(Path(folder), shared)
        models = {key for found in keys_in(Path(folder), single).values() for key in found}
        every = keys.pop(EVERY, set())
        rows = {EVERY: every} | {kind: keys[kind] - every for kind in sorted(keys)}
        rows["models"] = models - every.union(*keys.values())
        lines += ["", f"[{program}]"]
        written_only = WRITTEN_ONLY if program == "llama_cpp" else set()
        for kind, row in rows.items():
            names = sorted(key for key in row - written_only if not key.endswith("_attention"))
            lines += [f"{kind} = [\n{listed(names)}\n]"] if names else []
    OUT.write_text("\n".join(lines) + "\n", "utf-8")


def listed(names: list[str]) -> str:
    """Entries of a TOML list, in lines of at most 100 characters."""
    texts = ", ".join(f'"{name}"' for name in names) + ","
    return textwrap.fill(texts, 100, initial_indent="  ", subsequent_indent="  ")


if __name__ == "__main__":
    main()
