"""`jaxpe golden`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from jaxpe.cli.rope import NOT_JUDGED


@dataclasses.dataclass(frozen=True, kw_only=True)
class GoldenOptions:
    """Write golden vectors of a model: cos, sin, rotated q and k, and logits, as JSON and .npz.

    Attributes:
        config: config.json, a folder that contains one, a .gguf file, or a name such as
            Qwen/Qwen3-8B.
        out: folder to write golden.json and golden.npz to.
        revision: branch, tag or commit of a name such as Qwen/Qwen3-8B.
    """

    config: str
    out: Path
    revision: str | None = None


def write(options: GoldenOptions, words: Sequence[str]) -> None:
    """Write the files; a model type without rules ends with exit code 3."""
    from jaxpe.conformance.golden import NotJudgedError, write_golden  # late: slow to import

    try:
        golden = write_golden(options.config, options.out, revision=options.revision)
    except NotJudgedError as error:
        print(f"jaxpe: {error}", file=sys.stderr)
        sys.exit(NOT_JUDGED)
    for group in golden["groups"]:
        names = ", ".join(dict.fromkeys(member["name"] for member in group["members"]))
        if "reason" in group:
            print(f"{names}: no vectors, {group['reason']}")
            continue
        texts = "" if group["text"] == "any" else f" of {group['text']} texts"
        print(f"{names}: {len(group['positions'])} positions{texts}")
    print(f"Golden vectors: {options.out / 'golden.json'} and golden.npz")
