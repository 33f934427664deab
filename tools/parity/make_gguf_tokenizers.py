"""Write `gguf_tokenizers.json`: ids of texts by llama.cpp, for tokenizers that .gguf files carry.

Run by hand, in an environment of its own with gguf and xllamacpp:

    python tools/parity/make_gguf_tokenizers.py FOLDER

FOLDER is one of `experiments/fetch_models.py --gemma`. The rules by which text is split into words
are tried on the vocabulary of SmolLM2, of which files are written that name another rule.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2] / "tests" / "parity"
TEXTS = (
    "In 1789, the people of Paris didn't wait:\n\n  they took   the Bastille (14 July)!",
    "naïve café — 東京 12.5% 😀, x² ½ ٣٤",
    "<|im_start|>user\n\n\nwhat\t\tis <b>this</b>? I'LL 'Re 12345678",
    "  leading\r\n \n x",
    "\u2581x \ue000 zz _foo.bar(baz) \u00a0 e\u0301 don’t",
)
RULES = ("smollm", "gpt-2", "qwen2", "llama-bpe")


def changed(path: Path, out: Path, **changes: Any) -> None:
    """A copy of a .gguf file with other metadata."""
    import gguf

    reader = gguf.GGUFReader(path)
    fields = {n: field for n, field in reader.fields.items() if not n.startswith("GGUF.")}
    writer = gguf.GGUFWriter(out, fields.pop("general.architecture").contents())
    for name, field in fields.items():
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        value = changes.get(name, field.contents())
        writer.add_key_value(name, value, field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ids(path: Path) -> list[list[int]]:
    from make_llama import llama_cpp  # pyrefly: ignore

    ask = llama_cpp(path)
    options = {"add_special": False, "parse_special": True}
    return [ask("tokenize", content=text, **options)["tokens"] for text in TEXTS]


def main() -> None:
    folder = Path(sys.argv[1])
    smollm, gemma = (
        next((folder / name).glob("*.gguf")) for name in ("SmolLM2-135M-Instruct", "gemma-3-270m")
    )
    found = {"gemma": ids(gemma)}
    with tempfile.TemporaryDirectory() as scratch:
        for rule in RULES:
            path = Path(scratch, f"{rule}.gguf")
            changed(smollm, path, **{"tokenizer.ggml.pre": rule})
            found[rule] = ids(path)
        path = Path(scratch, "prefixed.gguf")
        changed(gemma, path, **{"tokenizer.ggml.add_space_prefix": True})
        found["gemma with a space in front"] = ids(path)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(of)}" for name, of in found.items())
    (HERE / "gguf_tokenizers.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
