"""Small models as files: directories of Hugging Face and .gguf files, written and changed."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy
from flax import nnx

from jaxpe import encodings
from jaxpe.nn import Bert, Encoder, TransformerConfig, save_huggingface

PARITY = Path(__file__).parent.parent / "parity"
HEAD_DIM = 16
METADATA = {
    "llama.embedding_length": 32,
    "llama.block_count": 2,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": HEAD_DIM,
    "llama.attention.value_length": HEAD_DIM,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": HEAD_DIM,
    "llama.rope.freq_base": 100.0,
    "llama.context_length": 64,
    "llama.vocab_size": 40,
    "general.name": "tiny",
}
PARTS = {
    "embed_tokens": "token_embd",
    "input_layernorm": "attn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "norm": "output_norm",
    "lm_head": "output",
}


def copied(name, folder):
    """A copy of a tiny model in a folder."""
    return Path(shutil.copytree(PARITY / name, folder / name))


def write_bert(folder, *, vocab_size, length, dim=8):
    """A directory of a BERT of one layer, as initialised."""
    sizes = {"vocab_size": vocab_size, "num_layers": 1, "num_heads": 2, "token_types": 2}
    config = TransformerConfig(**sizes, dim=dim, norm_position="post", norm_epsilon=1e-12)
    table = encodings.learned(length=length, dim=dim)
    encoder = Encoder(config, encoding=table, rngs=nnx.Rngs(0))
    fields = {"model_type": "bert", "vocab_size": vocab_size, "hidden_size": dim}
    fields |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4 * dim}
    encoder.fields = json.dumps(fields | {"max_position_embeddings": length})
    save_huggingface(Bert(encoder, rngs=nnx.Rngs(1)), folder)


def tensors(directory):
    found = safetensors.numpy.load_file(directory / "model.safetensors")
    return {name: tensor.astype(np.float32) for name, tensor in found.items()}


def write(directory, found):
    safetensors.numpy.save_file(found, directory / "model.safetensors", metadata={"format": "pt"})


def change(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def converted(found):
    """Tensors of a directory as llama.cpp's converter writes them."""
    out = {}
    for name, tensor in found.items():
        words = name.removesuffix(".weight").split(".")
        part = PARTS[words[-1]]
        heads = {"attn_q": 4, "attn_k": 2}.get(part)
        if heads is not None:  # (first, second half) of each head to pairs
            halves = tensor.reshape(heads, 2, HEAD_DIM // 2, -1)
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        place = f"blk.{words[2]}." if "layers" in words else ""
        out[f"{place}{part}.weight"] = np.ascontiguousarray(tensor)
    return out


def write_gguf(path, found, *, kind=None, architecture="llama", **changes):
    """A .gguf of tensors and METADATA with changes, its matrices quantised if a kind is given."""
    writer = gguf.GGUFWriter(path, architecture)
    add = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for name, value in (METADATA | changes).items():
        if value is not None:
            add[type(value)](name, value)
    for name, tensor in found.items():
        if kind is None or tensor.ndim < 2:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
