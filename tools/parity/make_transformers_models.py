"""Write `tiny_bert/`, `tiny_mpnet/` and `transformers_models.npz`: whole models as HF has them.

Run by hand, in an environment of its own with torch, transformers and safetensors (the file says
which versions it came from); the tests need none of them. The real models come from
`experiments/fetch_models.py`, the sentences from SST-2:

    JAXPE_DATA_DIR=... JAXPE_MODELS_DIR=... python tools/parity/make_transformers_models.py

The tiny models are random in every tensor (as they are initialised, biases would be 0 and norms 1,
and a name mixed up would not show). Their directories hold all heads at once, as a file of
`BertForPreTraining` does, so that reading one of them means leaving the others.
"""

import csv
import json
import os
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "tests" / "parity"
LENGTHS = (5, 9, 12, 15, 19, 24)  # of the sentences, in tokens with both special ones
SHOWN = (1, 4)  # sentences whose hidden states and weights are stored
TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "num_labels": 3,
}
TIED = ("decoder.weight", "decoder.bias")  # which transformers does not save either
BERT = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")
MPNET = ("MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification")
Outputs = dict[str, np.ndarray]


def write_tiny(name: str, config: str, classes: tuple[str, ...]) -> None:
    """A directory with random tensors for each of the heads, and for the pooler."""
    # Here and below, so that the tests can collect this file without them.
    import torch
    import transformers
    from safetensors.torch import save_file

    sizes = getattr(transformers, config)(**TINY, architectures=[classes[1]])
    base, *heads = (getattr(transformers, kind)(sizes).state_dict() for kind in classes)
    tensors = {f"{sizes.model_type}.{key}": value for key, value in base.items()}
    tensors |= {key: value for head in heads for key, value in head.items()}
    torch.manual_seed(0)
    random = {
        key: float(key.lower().endswith("norm.weight")) + 0.3 * torch.randn(value.shape)
        for key, value in sorted(tensors.items())
        if not key.endswith(TIED)
    }
    (HERE / name).mkdir(exist_ok=True)
    sizes.save_pretrained(HERE / name)
    save_file(random, HERE / name / "model.safetensors", metadata={"format": "pt"})
    (HERE / name / "model.safetensors").chmod(0o644)


def sentences() -> list[str]:
    path = Path(os.environ["JAXPE_DATA_DIR"]) / "sst2" / "dev.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file, delimiter="\t")]


def real_batch(directory: Path) -> tuple:
    """Ids and mask of one sentence for each of LENGTHS."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    texts = sentences()
    counts = [len(ids) for ids in tokenizer(texts).input_ids]
    chosen = [texts[counts.index(length)] for length in LENGTHS]
    batch = tokenizer(chosen, padding=True, return_tensors="pt")
    return batch.input_ids, batch.attention_mask


def tiny_batch(ids, mask, pad: int):
    """The same sentences in a vocabulary of 60, of which the first 5 are special."""
    import torch

    return torch.where(mask == 1, 5 + ids % 55, pad)


def to_the_left(values, mask):
    """The same rows with their padding on the left."""
    import torch

    rows = [torch.cat([v[m == 0], v[m == 1]]) for v, m in zip(values, mask, strict=True)]
    return torch.stack(rows)


def array(tensor) -> np.ndarray:
    return tensor.detach().numpy().astype(np.float32)


def outputs(model, ids, mask, layers: tuple[int, ...], **inputs) -> Outputs:
    """What a model computes; rows of padding, which nothing depends on, as 0."""
    found = model(
        ids, attention_mask=mask, output_hidden_states=True, output_attentions=True, **inputs
    )
    real = mask[:, :, None]
    shown = list(SHOWN)
    result = {
        "ids": ids.numpy().astype(np.int32),
        "mask": mask.numpy().astype(bool),
        "last": array(found.last_hidden_state * real),
        "pooled": array(found.pooler_output),
    }
    for layer in layers:
        weights = found.attentions[layer] * mask[:, None, :, None]
        result[f"weights_{layer}"] = array(weights[shown])  # [2, heads, query, key]
        result[f"hidden_{layer}"] = array((found.hidden_states[layer] * real)[shown])
    return result


def load(kind: str, directory: Path):
    import transformers

    model = getattr(transformers, kind).from_pretrained(directory, attn_implementation="eager")
    return model.eval().float()


def add(out: Outputs, name: str, found: Outputs) -> None:
    out.update({f"{name}_{key}": value for key, value in found.items()})


def tiny(out: Outputs, name: str, kinds: tuple[str, ...], ids, mask) -> None:
    """All outputs of one of the tiny models, with padding on the left too."""
    base, masked_lm, classifier = (load(kind, HERE / name) for kind in kinds)
    inputs = {}
    if name == "tiny_bert":
        inputs["token_type_ids"] = (mask.cumsum(1) > 4).long() * mask
        out["tiny_bert_token_types"] = inputs["token_type_ids"].numpy().astype(np.int32)
    add(out, name, outputs(base, ids, mask, (0, 1), **inputs))
    real = mask[:, :, None]
    out[f"{name}_masked_lm"] = array(masked_lm(ids, attention_mask=mask, **inputs).logits * real)
    out[f"{name}_classes"] = array(classifier(ids, attention_mask=mask, **inputs).logits)
    ids, mask = to_the_left(ids, mask), to_the_left(mask, mask)
    last = base(ids, attention_mask=mask).last_hidden_state
    out[f"{name}_left_ids"], out[f"{name}_left_mask"] = ids.numpy(), mask.numpy().astype(bool)
    out[f"{name}_left_last"] = array(last * mask[:, :, None])


def main() -> None:
    import safetensors
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    models = Path(os.environ["JAXPE_MODELS_DIR"])
    write_tiny("tiny_bert", "BertConfig", BERT)
    write_tiny("tiny_mpnet", "MPNetConfig", MPNET)
    minilm, mpnet = models / "all-MiniLM-L6-v2", models / "all-mpnet-base-v2"
    out: Outputs = {}
    ids, mask = real_batch(minilm)
    tiny(out, "tiny_bert", BERT, tiny_batch(ids, mask, 0), mask)
    tiny(out, "tiny_mpnet", MPNET, tiny_batch(ids, mask, 1), mask)
    add(out, "minilm", outputs(load("BertModel", minilm), ids, mask, (0, 5)))
    ids, mask = real_batch(mpnet)
    add(out, "mpnet", outputs(load("MPNetModel", mpnet), ids, mask, (0, 11)))
    packages = (torch, transformers, safetensors)
    versions = {package.__name__: package.__version__ for package in packages}
    out["versions"] = np.array(json.dumps(versions))
    out["shown"] = np.array(SHOWN)
    np.savez_compressed(HERE / "transformers_models.npz", **out)


if __name__ == "__main__":
    main()
