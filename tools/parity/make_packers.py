"""Write `tests/conformance/packers.npz`: batches packed by TRL, torchtitan and datatrove.

It needs torch, transformers, trl, torchtitan and datatrove; the tests need none of them.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from datatrove.utils.dataset import DatatroveFileDataset
from torchtitan.hf_datasets.text_datasets import DATASETS, DatasetConfig, HuggingFaceTextDataset
from transformers import DataCollatorWithFlattening
from trl import pack_dataset
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from tools.parity.goldens import HERE, write_arrays

ROW, PAD, EOS, BOS = 32, 0, 1, 2


def documents() -> list[list[int]]:
    """Documents of 1 to 40 ids, without special ones; some are longer than a row."""
    rng = np.random.default_rng(0)
    lengths = [*rng.integers(1, 41, 60), 1, 1, 31, 32, 33]
    return [rng.integers(10, 100, n).tolist() for n in lengths]


def trl() -> dict[str, list[dict[str, torch.Tensor]]]:
    """Packed rows are made flat by the trainer; padded rows hold one document each."""
    ended = Dataset.from_dict({"input_ids": [[*ids, EOS][:ROW] for ids in documents()]})
    flat = DataCollatorForLanguageModeling(pad_token_id=PAD, padding_free=True)
    padded = DataCollatorForLanguageModeling(pad_token_id=PAD, return_position_ids=True)
    made = {"trl padded": [padded([ended[i + k] for k in range(4)]) for i in range(0, 60, 4)]}
    for strategy in ("bfd", "bfd_split"):
        packed = pack_dataset(ended, seq_length=ROW, strategy=strategy)
        rows = [packed[i] for i in range(len(packed))]
        made[f"trl {strategy}"] = [flat(rows[i : i + 4]) for i in range(0, len(rows), 4)]
    return made


def transformers() -> list[dict[str, torch.Tensor]]:
    rows = [{"input_ids": [*ids, EOS]} for ids in documents()]
    collate = DataCollatorWithFlattening()
    return [collate(rows[i : i + 8]) for i in range(0, len(rows), 8)]


class Tokenizer:
    def encode(self, text: str, add_bos: bool, add_eos: bool) -> list[int]:
        return [*[BOS] * add_bos, *map(int, text.split()), *[EOS] * add_eos]


def torchtitan() -> list[dict[str, torch.Tensor]]:
    texts = Dataset.from_dict({"text": [" ".join(map(str, ids)) for ids in documents()]})
    DATASETS["numbers"] = DatasetConfig("", lambda path: texts, lambda row: row["text"])
    data = HuggingFaceTextDataset("numbers", None, Tokenizer(), seq_len=ROW)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    return [{**inputs, "labels": labels} for inputs, labels in loader]


def datatrove() -> dict[str, list[dict[str, torch.Tensor]]]:
    ended = [[*ids, EOS] for ids in documents()]
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.ds"
        path.write_bytes(np.concatenate(ended).astype(np.uint16).tobytes())
        ends = np.cumsum([len(ids) for ids in ended]).astype(np.uint64)
        Path(f"{path}.index").write_bytes(ends.tobytes())
        for name, eos in (("index", None), ("eos", EOS)):
            data = DatatroveFileDataset(
                str(path), ROW - 1, return_positions=True, positions_from_eos_token_id=eos
            )
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            made[f"datatrove {name}"] = list(loader)
    return made


def main() -> None:
    made = {**trl(), "transformers": transformers(), "torchtitan": torchtitan(), **datatrove()}
    arrays = {
        f"{packer}/{i}/{name}": np.asarray(value, np.int16)
        for packer, batches in made.items()
        for i, batch in enumerate(batches[-5:])
        for name, value in batch.items()
        if isinstance(value, torch.Tensor)
    }
    packages = ("torch", "transformers", "trl", "torchtitan", "datatrove")
    write_arrays(HERE.parent / "conformance" / "packers.npz", arrays, *packages)


if __name__ == "__main__":
    main()
