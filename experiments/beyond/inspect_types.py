"""`inspect_torch` on a tiny random model of every causal and encoder type of transformers.

Each type is built from its configuration, with sizes that fit a test, and inspected by every stage
on the built-in words of the tests. It needs torch and transformers: the extra `torch`.
"""

import contextlib
import json
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import DataMissingError, Run, main
from jaxpe._core.errors import InputError, MissingExtraError, require
from jaxpe._core.files import cache_directory
from jaxpe.analysis.inspect import InspectOptions, inspect_torch
from jaxpe.analysis.inspect.job import STAGES
from jaxpe.analysis.inspect.torch_model import TorchModel
from jaxpe.analysis.inspect.torch_trace import eager_attention, float_array
from tests.analysis.inspect.folders import text, with_tokenizer

LIMIT = 120  # seconds a type
MOST = 60e6  # parameters of a model that is built
QUICK = ("bert", "llama", "gpt2", "bloom", "gpt_oss", "mamba")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "embedding_size")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
INNER = (
    *("intermediate_size", "ffn_dim", "d_inner", "n_inner", "d_ff", "ffn_hidden_size"),
    *("encoder_ffn_dim", "hidden_dim", "shared_expert_intermediate_size", "mlp_hidden_size"),
)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
SMALL: dict[str, Any] = {
    **dict.fromkeys(LAYERS, 4),
    **dict.fromkeys(WIDTHS, 64),
    **dict.fromkeys(HEADS, 4),
    **dict.fromkeys(INNER, 128),
    **dict.fromkeys(EXPERTS, 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k_experts", "moe_top_k", "moe_k"), 2),
    **dict.fromkeys(("n_positions", "max_position_embeddings", "n_ctx", "max_seq_len"), 256),
    **dict.fromkeys(("head_dim", "v_head_dim", "qk_nope_head_dim", "kv_channels"), 16),
    **{"vocab_size": 64, "num_key_value_heads": 2, "qk_rope_head_dim": 16},
    **{"moe_intermediate_size": 32, "q_lora_rank": 16, "kv_lora_rank": 16, "n_group": 1},
    **{"topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1},
    **{"sliding_window": 8, "local_attention": 8, "attention_window": 8, "chunk_size": 8},
    **{"state_size": 8, "mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 16},
    **{"mamba_n_groups": 1, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1},
    **{"time_step_rank": 4, "ssm_state_size": 8, "mamba_chunk_size": 8},
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16},
    **{"linear_value_head_dim": 16, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
}
# Other sizes of types whose fields depend on each other; None for fields that cannot be set.
OTHERS: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "bamba": {"attn_layer_indices": [1, 3]},
    "blt": {"encoder_hash_byte_group_vocab": 64},
    "codegen": {"rotary_dim": 8},
    "deepseek_v2": {"num_experts_per_tok": 2, "num_key_value_heads": 4},
    "gemma3n_text": {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 64},
    "gemma4_text": {"vocab_size_per_layer_input": 64},
    "gptj": {"rotary_dim": 8},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "luke": {"entity_emb_size": 64, "entity_vocab_size": 64},
    "plbart": {"decoder_attention_heads": 4},
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [16, 16]},
    "whisper": {"decoder_attention_heads": 4, "decoder_layers": 4},
    "xlnet": {"max_position_embeddings": None},
    "xlstm": {"v_head_dim": None},
    "xmod": {"default_language": "en_XX"},
}
# Groups of fields that are left at their defaults, one after the other, when a type does not build.
GROUPS: tuple[tuple[str, ...], ...] = (
    (),
    ("num_key_value_heads",),
    ("head_dim", "kv_channels"),
    (*EXPERTS, "num_experts_per_tok", "top_k_experts", "moe_top_k", "moe_k", "n_group"),
    LAYERS,
    ("chunk_size", "attention_window", "local_attention", "sliding_window"),
    tuple(k for k in SMALL if k.startswith(("mamba", "linear", "state", "n_groups", "time", "ss"))),
)


KEPT = ("class", "kind", "encoding", "left_out", "stages", "absent")


class SlowError(BaseException):
    """Not caught by what tries one configuration after the other."""


def types() -> dict[str, str]:
    """Every type with a causal or a masked language model, and the class of `transformers`."""
    auto = require("transformers.models.auto.modeling_auto", extra="torch")
    masked = dict.fromkeys(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, "AutoModel")
    causal = dict.fromkeys(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "AutoModelForCausalLM")
    return dict(sorted((causal | masked).items()))


def configurations(model_type: str) -> Iterator[Any]:
    """Small configurations of a type, the smallest first."""
    transformers = require("transformers", extra="torch")
    variations = require("tools.parity.rope_classes.variations", extra="torch")
    cls = type(transformers.AutoConfig.for_model(model_type))
    for group, heads in [(group, heads) for heads in (2, 4) for group in GROUPS]:
        small = {name: value for name, value in SMALL.items() if name not in group}
        small |= {"num_key_value_heads": heads} if "num_key_value_heads" in small else {}
        with contextlib.suppress(Exception):  # other groups are tried
            default = variations.new(cls)
            fields = shrunk(default, small) | OTHERS.get(model_type, {})
            yield variations.new(cls, **{k: v for k, v in fields.items() if v is not None})


def shrunk(config: Any, small: dict[str, Any]) -> dict[str, Any]:
    """Fields of a configuration, and of those inside it, with small values."""
    fields = {}
    for name, value in small.items():
        with contextlib.suppress(Exception):  # fields that vary by layer
            if getattr(config, name, None) is not None:
                fields[name] = value
    for name in getattr(config, "sub_configs", {}):
        if (inner := getattr(config, name, None)) is not None:
            fields[name] = {"model_type": inner.model_type, **shrunk(inner, small)}
    return fields


def built(model_type: str, kind: str) -> Any:
    """The model as stages see it; raises the last error."""
    torch, transformers = (require(name, extra="torch") for name in ("torch", "transformers"))
    errors: list[Exception] = []
    for config in configurations(model_type):
        try:
            with torch.device("meta"):
                empty = getattr(transformers, kind).from_config(config)
            if (count := sum(one.numel() for one in empty.parameters())) > MOST:
                raise InputError(f"{count / 1e6:,.0f} million parameters are not small")
            torch.manual_seed(0)
            return TorchModel(getattr(transformers, kind).from_config(config).float().eval())
        except Exception as problem:
            errors.append(problem)
            if "has an encoder and a decoder" in str(problem):
                break
    raise next(iter(errors), InputError("no configuration can be built from small sizes"))


def inspected(model_type: str, kind: str, folder: Path) -> dict[str, Any]:
    """Stages that ran, and the reasons of those that did not."""
    start = time.perf_counter()
    signal.signal(signal.SIGALRM, _slow)
    signal.alarm(LIMIT)
    row: dict[str, Any] = {"class": kind}
    try:
        model = built(model_type, kind)
        row |= {"class": type(model.model).__name__, "kind": model.kind}
        row |= {"encoding": " and ".join(model.encodings), "left_out": model.left_out}
        row |= errors_of_weights(model)
        options = InspectOptions(
            model=model_type, source=str(folder / "words.txt"), quick=True, length=16, examples=8,
            longest=64,
        )  # fmt: skip
        tokenizer = str(folder / "tokenizer.json")
        result = inspect_torch(model.model, tokenizer, options)
        row["stages"] = [stage for stage in STAGES if getattr(result, stage) is not None]
        row["absent"] = result.absent
    except (Exception, SlowError) as problem:
        row["error"] = f"{type(problem).__name__}: {problem}"[:300].replace("\n", " ")
    finally:
        signal.alarm(0)
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def errors_of_weights(model: TorchModel) -> dict[str, float | None]:
    """Largest errors of the traced weights, None where they cannot be compared.

    One is against the softmax of the traced logits over the pairs that are not closed, the other
    against the weights that the class itself returns.
    """
    ids = np.random.default_rng(2).integers(4, 40, (2, 12))
    if not model.sizes.attention_layers and model.sizes.attention_layers is not None:
        return {"softmax_error": None, "class_error": None}
    trace = model.traced(lambda trace, ids: (trace.logits, trace.weights))
    logits, weights = (np.asarray(x, np.float64) for x in trace(ids))
    powers = np.where(weights > 0, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0)
    sums = powers.sum(axis=-1, keepdims=True)
    expected = powers / np.where(sums > 0, sums, 1)
    own = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)
    errors: dict[str, float | None] = {"softmax_error": float(abs(expected - own).max())}
    errors["class_error"] = None
    with contextlib.suppress(Exception), eager_attention(model.model):
        given = model.torch.as_tensor(ids)
        with model.torch.no_grad():
            found = model.base(
                input_ids=given, attention_mask=model.torch.ones_like(given), output_attentions=True
            )
        returned = [float_array(one) for one in found.attentions if one is not None]
        # Some classes return logits in place of weights.
        if len(returned) == len(weights) and min(one.min() for one in returned) >= 0:
            errors["class_error"] = float(abs(np.stack(returned) - weights).max())
    return errors


def _slow(*_: Any) -> None:
    raise SlowError(f"more than {LIMIT} s")


def experiment(run: Run) -> dict[str, Any]:
    try:
        torch, transformers = (require(name, extra="torch") for name in ("torch", "transformers"))
    except MissingExtraError as error:
        raise DataMissingError(str(error)) from error
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    finished = (cache_directory() or Path(tempfile.gettempdir())) / "inspect_types.jsonl"
    finished.parent.mkdir(parents=True, exist_ok=True)
    lines = finished.read_text().splitlines() if finished.is_file() and not run.quick else []
    rows = {row["type"]: row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as name:
        folder = with_tokenizer("tiny_bert", Path(name), special=False)
        text(folder / "words.txt")
        for model_type, kind in types().items():
            if model_type in rows or (run.quick and model_type not in QUICK):
                continue
            rows[model_type] = {"type": model_type} | inspected(model_type, kind, folder)
            if not run.quick:
                with finished.open("a") as file:
                    file.write(json.dumps(rows[model_type]) + "\n")
    return table(rows, transformers.__version__, torch.__version__)


def table(rows: dict[str, dict[str, Any]], version: str, torch: str) -> dict[str, Any]:
    """Types by stage, and how many of them each stage reaches."""
    done = {name: row for name, row in sorted(rows.items()) if "stages" in row}
    failed = {name: row["error"] for name, row in sorted(rows.items()) if "stages" not in row}
    errors = {
        name: {k: row[k] for k in ("softmax_error", "class_error") if row[k] is not None}
        for name, row in done.items()
    }
    counts = Counter(stage for row in done.values() for stage in row["stages"])
    return {
        "transformers": version,
        "torch": torch,
        "types": len(rows),
        "inspected": len(done),
        "by_stage": {stage: counts[stage] for stage in STAGES},
        "largest": {
            name: max((one[name] for one in errors.values() if name in one), default=None)
            for name in ("softmax_error", "class_error")
        },
        "compared": sum("class_error" in one for one in errors.values()),
        "by_kind": dict(Counter(row["kind"] for row in done.values())),
        "seconds": sum(row["seconds"] for row in rows.values()),
        "rows": {
            name: {key: row[key] for key in KEPT} | errors[name] for name, row in done.items()
        },
        "failed": failed,
    }


if __name__ == "__main__":
    main(experiment, "inspect_types")
