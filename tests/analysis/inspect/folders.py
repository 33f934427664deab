"""Folders of tiny models with a tokenizer, and text for them."""

import json
import shutil
from pathlib import Path

import numpy as np

PARITY = Path(__file__).parents[2] / "parity"
# Fifteen tokens of needles and questions; the random weights say nothing about them.
_NEEDLES = "The favourite colour of is . Anna Bruno Clara David Emma red blue green black white"
_WORDS = [f"w{k}" for k in range(19)]


def with_tokenizer(name: str, folder: Path, *, special: bool = True) -> Path:
    """A copy of a tiny checkpoint with a tokenizer.json of 40 words."""
    shutil.copytree(PARITY / name, folder, dirs_exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_NEEDLES.split(), *_WORDS]
    model = {
        "type": "WordLevel",
        "vocab": {word: i for i, word in enumerate(words)},
        "unk_token": "[UNK]",
    }
    made = {"version": "1.0", "added_tokens": [], "model": model}
    made["pre_tokenizer"] = {"type": "Whitespace"}
    if special:
        ends = {"[CLS]": 2, "[SEP]": 3}
        made["post_processor"] = {
            "type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2],
        }  # fmt: skip
        made["added_tokens"] = [
            {"id": i, "content": name, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}
            for name, i in ends.items()
        ]  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(made))
    return folder


def text(path: Path, *, documents: int = 120, words: int = 40) -> Path:
    """A .txt with a document a line, of words drawn evenly."""
    drawn = np.random.default_rng(0).integers(0, len(_WORDS), (documents, words))
    path.write_text("\n".join(" ".join(_WORDS[k] for k in row) for row in drawn))
    return path
