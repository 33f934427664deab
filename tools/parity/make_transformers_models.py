"""Write BERT, MPNet and T5 as transformers computes them: `transformers_models.npz`, `t5.npz`.

And `tiny_bert/`, `tiny_mpnet/`, `tiny_t5/` and `tiny_t5_gated/`. It needs torch, transformers and
safetensors; the tests need safetensors alone. Real models come from `experiments/fetch_models.py`,
sentences from SST-2: it reads JAXPE_DATA_DIR and JAXPE_MODELS_DIR.

The tiny models are random in every tensor (as they are initialised, biases would be 0 and norms 1,
and a name mixed up would not show). The directories of BERT and MPNet hold all heads at once, as a
file of `BertForPreTraining` does, so that reading one of them means leaving the others.

The first T5 is T5 1.0: a ReLU, a tied head whose input is scaled. The second is T5 1.1: a gated
GELU, a head of its own, and here another number of layers in the decoder. transformers 5 ties the
head of a T5 that it makes, and no longer reads `tie_word_embeddings` but to tell whether the input
of the head is scaled; so the head is set after the model is made.
"""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tools.parity.goldens import HERE, write_arrays

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


T5 = {
    "vocab_size": 40,
    "d_model": 32,
    "d_kv": 6,  # not d_model / num_heads
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "dropout_rate": 0.1,
    "decoder_start_token_id": 0,
}
T5_CASES: dict[str, dict[str, Any]] = {
    "tiny_t5": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "tiny_t5_gated": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "num_decoder_layers": 3,
    },
}
RANDOM = np.random.default_rng(0)
ROWS, LONG, SHORT = 3, 26, 7  # longer than the largest distance that has a bucket of its own
IDS = RANDOM.integers(2, T5["vocab_size"], (ROWS, LONG), np.int32)
ANSWERS = np.concatenate(
    [np.zeros((ROWS, 1), np.int32), RANDOM.integers(2, 40, (ROWS, SHORT - 1), np.int32)], axis=1
)
PLACES = np.arange(LONG)
# Row 0 is whole, row 1 has padding on the right, row 2 on the left.
MASK = np.stack([PLACES >= 0, PLACES < LONG - 5, PLACES >= 4])
# Of the decoder, by case: none, on the right, on the left.
DECODER_MASK = np.stack([np.arange(SHORT) >= 0, np.arange(SHORT) < SHORT - 2, np.arange(SHORT) > 0])


def t5_config(case: str) -> dict[str, Any]:
    """The config.json of a case."""
    given = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    return {**given, **T5, **T5_CASES[case]}


def t5_model(fields: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """The model of transformers with these tensors, in float64."""
    import torch
    import transformers

    fields = {k: v for k, v in fields.items() if k not in ("model_type", "architectures")}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**fields))
    if "lm_head.weight" in tensors:
        model.lm_head.weight = torch.nn.Parameter(tensors["lm_head.weight"].float())
    found = model.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    tied = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
    if set(found.missing_keys) - tied or found.unexpected_keys:
        raise SystemExit(f"{found}")
    return model.double().eval()


def t5_outputs(model: Any) -> dict[str, np.ndarray]:
    """Hidden states of both sides, logits, and greedy tokens."""
    import torch

    def tensor(x: np.ndarray) -> Any:
        return torch.from_numpy(x.astype(np.int64))

    given = {"input_ids": tensor(IDS), "attention_mask": tensor(MASK)}
    with torch.no_grad():
        encoder = model.encoder(**given).last_hidden_state
        seen = model(
            **given,
            decoder_input_ids=tensor(ANSWERS),
            decoder_attention_mask=tensor(DECODER_MASK),
            output_hidden_states=True,
            use_cache=False,
        )
        # Its cache has num_layers layers, also where the decoder has more.
        options = {"do_sample": False, "eos_token_id": None, "use_cache": False}
        greedy = model.generate(**given, max_new_tokens=SHORT, **options)
    return {
        "encoder": encoder.numpy(),
        "decoder": seen.decoder_hidden_states[-1].numpy(),
        "logits": seen.logits.numpy(),
        "greedy": greedy[:, 1:].numpy().astype(np.int32),
    }


def t5_case(case: str) -> dict[str, np.ndarray]:
    """A directory with random tensors, and what transformers computes with them."""
    import torch
    import transformers
    from safetensors.torch import save_file

    fields = t5_config(case)
    sizes = transformers.T5Config(**T5, **T5_CASES[case])
    shapes = transformers.T5ForConditionalGeneration(sizes).state_dict()
    torch.manual_seed(0)
    left_out = ("embed_tokens", *["lm_head"] * fields["tie_word_embeddings"])
    tensors = {
        name: (float("norm" in name) + 0.25 * torch.randn(tensor.shape)).bfloat16()
        for name, tensor in sorted(shapes.items())
        if not any(part in name for part in left_out)
    }
    folder = HERE / case
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    found = t5_outputs(t5_model(fields, tensors))
    return {f"{case}_{name}": array for name, array in found.items()}


def main() -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    packages = ("torch", "transformers", "safetensors")
    t5: Outputs = {}
    for case in T5_CASES:
        t5 |= t5_case(case)
    write_arrays(HERE / "t5.npz", t5, *packages)
    models = Path(os.environ["JAXPE_MODELS_DIR"])
    write_tiny("tiny_bert", "BertConfig", BERT)
    write_tiny("tiny_mpnet", "MPNetConfig", MPNET)
    minilm, mpnet = models / "all-MiniLM-L6-v2", models / "all-mpnet-base-v2"
    out: Outputs = {"shown": np.array(SHOWN)}
    ids, mask = real_batch(minilm)
    tiny(out, "tiny_bert", BERT, tiny_batch(ids, mask, 0), mask)
    tiny(out, "tiny_mpnet", MPNET, tiny_batch(ids, mask, 1), mask)
    add(out, "minilm", outputs(load("BertModel", minilm), ids, mask, (0, 5)))
    ids, mask = real_batch(mpnet)
    add(out, "mpnet", outputs(load("MPNetModel", mpnet), ids, mask, (0, 11)))
    write_arrays(HERE / "transformers_models.npz", out, *packages)


if __name__ == "__main__":
    main()
