"""Write what transformers itself makes of configurations to `rope_versions.json`.

It needs transformers 4.57 and no torch, since a few names of it are lent from NumPy. Of each
configuration of `tests/plans/published.json` and `reported.json` it keeps θ, the attention factor
and every eighth frequency (float64 here) at the longest text, by kind of layer, and how many there
are.
"""

import contextlib
import json
import types

import numpy as np

from tools.parity.goldens import HERE

CONFIGS = HERE.parent / "plans"
OUT = HERE / "rope_versions.json"
STEP = 8  # of the frequencies


class Lent(np.ndarray):
    """An array with the methods of a tensor that the functions call."""

    def to(self, *args, dtype=None, **kwargs):
        return self if dtype is None else self.astype(dtype).view(Lent)

    def float(self):
        return self.astype(np.float64).view(Lent)


def lent(function):
    def call(*args, dtype=None, device=None, **kwargs):
        return np.asarray(function(*args, **kwargs)).astype(dtype or np.float64).view(Lent)

    return call


TORCH = types.SimpleNamespace(
    arange=lent(np.arange),
    tensor=lent(np.array),
    zeros=lent(np.zeros),
    cat=lambda parts, dim=0: np.concatenate(parts, dim).view(Lent),
    where=lambda *args: np.where(*args).view(Lent),
    clamp=lambda x, low, high: np.clip(x, low, high).view(Lent),
    float=np.float64,
    float32=np.float64,
    int64=np.int64,
    Tensor=Lent,
)


def default(config, layer_type=None):
    """Frequencies without scaling, which models compute in their own code."""
    entry = entry_of(config, layer_type)
    share = entry.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", 1.0))
    share = getattr(config, "rotary_pct", share)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    dim = int(head * share)
    return 1 / entry["rope_theta"] ** (np.arange(0, dim, 2) / dim), 1.0


def entry_of(config, layer_type=None):
    if layer_type == "sliding_attention":
        return {"rope_theta": config.rope_local_base_freq}
    return {**(getattr(config, "rope_scaling", None) or {}), "rope_theta": config.rope_theta}


def computed(config, layer_type, length):
    from transformers import modeling_rope_utils

    entry = entry_of(config, layer_type)
    kind = entry.get("rope_type", entry.get("type", "default"))
    kind = {"su": "longrope", "mrope": "default"}.get(kind, kind)
    if kind == "default":
        inverse, factor = default(config, layer_type)
    else:
        function = modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
        inverse, factor = function(config, None, seq_len=length)
    return {
        "base": entry["rope_theta"],
        "factor": float(factor),
        "count": len(inverse),
        "inverse": np.asarray(inverse)[::STEP].tolist(),
    }


def layer_types(config):
    local = hasattr(config, "rope_local_base_freq")
    return ["full_attention", "sliding_attention"] if local else [None]


def read(fields):
    """What this version makes of the fields, or the error that it raises."""
    from transformers import CONFIG_MAPPING

    fields = {
        **{k: v for k, v in fields.items() if k != "text_config"},
        **fields.get("text_config", {}),
    }
    fields = {k: v for k, v in fields.items() if k not in ("torch_dtype", "dtype")}
    kind = fields.pop("model_type")
    try:
        config = CONFIG_MAPPING[kind](**fields)
        length = config.max_position_embeddings
        return {str(t or "all"): computed(config, t, length) for t in layer_types(config)}
    except Exception as error:  # whatever a version raises is its answer
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def main() -> None:
    import transformers
    from transformers import modeling_rope_utils

    modeling_rope_utils.torch = TORCH
    known = json.loads(OUT.read_text()) if OUT.exists() else {}
    version = ".".join(transformers.__version__.split(".")[:2])
    known[version] = {"version": transformers.__version__}
    for name in ("published", "reported"):
        with contextlib.suppress(FileNotFoundError):
            configs = json.loads((CONFIGS / f"{name}.json").read_text())
            known[version] |= {key: read(fields) for key, fields in configs.items()}
    OUT.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
