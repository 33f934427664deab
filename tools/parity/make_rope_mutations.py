"""Make `rope_mutations.json.gz`: what classes of transformers compute of spoilt configurations.

It needs the newest transformers and torch: see `README.md`.

Configurations are those of `tests/plans/published.json` and `threads.json`, and what the class of
each type of `jaxpe/plans/families.toml` writes of its defaults, also scaled in the form of version
4. Each positional key is dropped, misspelt or moved, one at a time. The class then reads the
fields, and its rotary embedding makes frequencies: no model is built. Stored are fields, changes,
and digests of frequencies by layer, or the error. Which layers turn follows the code of the models,
where that is a line.
"""

import copy
import importlib
import importlib.util
import inspect
import json
import math
import re
import warnings
import zlib
from itertools import groupby

import torch
from transformers import CONFIG_MAPPING, MODEL_MAPPING
from transformers.utils import logging

from tools.parity.goldens import HERE, families, versions, write_compressed

PLANS = HERE.parent / "plans"
POSITIONAL = re.compile(
    r"rope|rotary|nope|alibi|theta|base_freq|^swa_|^global_|^local_|^compress_|position_embedding"
    r"|position_encoding|layer_types|block_type|pattern|window|^alpha$|_alpha$|_interval$|attn_layer"
    r"|full_attn|logn_attn|linear_attn|attn_temperature|attention_chunk|head_dim|max_position"
    r"|every_n|qk_|n_positions|ntk|yarn|kv_cache_layers|model_max_length|base_freq"
)
SIZES = (
    "model_type", "hidden_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
    "n_embd", "n_head", "n_layer", "text_config",
)  # fmt: skip
ENTRIES = ("rope_scaling", "rope_parameters")
LINEAR = {"linear_attention", "conv", "mamba", "recurrent", "moe", "mlp", "linear"}
WINDOWED = {"sliding_attention", "hybrid_sliding"}
ONLY_WINDOWED = (  # types whose other layers do not turn
    "cohere2", "cohere2_moe", "afmoe", "exaone4", "exaone_moe", "flint", "kolibri1", "lara_mini",
)  # fmt: skip
UNTURNED = {  # fields with 0 for layers that do not turn
    "llama4_text": "no_rope_layers",
    "smollm3": "no_rope_layers",
    "mistral_large4_text": "no_rope_layers",
    "muse_glimmer_text": "layer_rope_theta",
    "muse_spark_text": "layer_rope_theta",
}
FLAGS = {  # what says whether layers turn
    "falcon": lambda config: not config.alibi,
    "granitemoehybrid": lambda config: config.position_embedding_type == "rope",
    "zamba2": lambda config: config.use_mem_rope,
}
LEFT_OUT = ("hrm_text",)  # writes num_hidden_layers in a form that reads otherwise
WITHOUT = ("nemotron_h", "kimi_linear", "jamba")  # no rotary class: nothing turns


BESIDE = ("rope_theta", "partial_rotary_factor")  # the entry, in version 4
KINDS = ("yarn", "linear", "llama3", "dynamic", "longrope")


# -- configurations
def configurations() -> dict[str, dict]:
    """Fields by name."""
    found = {}
    for name, fields in json.loads((PLANS / "published.json").read_text()).items():
        found[name] = fields
    for name, case in json.loads((PLANS / "threads.json").read_text()).items():
        fields = case.get("input", {})
        taken = [one for one in found.values() if shape(one) == shape(fields)]
        if not taken and not case.get("options") and fields.get("model_type") in CONFIG_MAPPING:
            found[name] = fields
    for model_type in families()["rotary"]:
        if model_type in CONFIG_MAPPING and model_type not in LEFT_OUT:
            found[f"{model_type} of its class"] = restricted(CONFIG_MAPPING[model_type]().to_dict())
    found = {name: fields for name, fields in found.items() if readable(fields)}
    flat = [name for name in found if name.endswith("its class") and not nested(found[name])]
    found |= {f"{name}, scaled": older(found[name], i) for i, name in enumerate(flat)}
    return {name: fields for name, fields in found.items() if readable(fields)}


def nested(fields: dict) -> bool:
    """Whether there is no entry, or one with a part for each kind of layer."""
    text = fields.get("text_config", fields)
    entry = text.get("rope_parameters")
    return not entry or any(isinstance(part, dict) for part in entry.values())


def older(fields: dict, number: int) -> dict:
    """Fields in the form of version 4, scaled by one of five types."""
    fields = copy.deepcopy(fields)
    text = fields.get("text_config", fields)
    entry = text.pop("rope_parameters")
    text |= {key: entry.pop(key) for key in BESIDE if key in entry}
    length = text.get("max_position_embeddings", 4096)
    kind = KINDS[number % len(KINDS)]
    scaling = {"rope_type": kind, "factor": 4.0}
    if kind in ("yarn", "llama3", "longrope"):
        scaling["original_max_position_embeddings"] = length // 4
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "longrope":
        layers = truth(fields).get("layers", ())
        count = next((one[4] for one, _ in layers if one), 32)
        scaling["short_factor"] = [round(1 + 0.01 * i, 2) for i in range(count)]
        scaling["long_factor"] = [round(1 + 0.5 * i, 1) for i in range(count)]
    kept = {key: entry[key] for key in ("mrope_section", "mrope_interleaved") if key in entry}
    return fields | (
        {"text_config": {**text, "rope_scaling": scaling | kept}}
        if "text_config" in fields
        else {"rope_scaling": scaling | kept}
    )


def shape(fields: dict) -> tuple:
    """Type and keys: configurations of the same are one."""
    text = fields.get("text_config", fields)
    return fields.get("model_type"), tuple(sorted(text)), str(text.get("rope_scaling"))


def restricted(fields: dict) -> dict:
    """Positional fields and sizes, without the nulls that classes write."""
    kept = {k: v for k, v in fields.items() if k in (*SIZES, *ENTRIES) or POSITIONAL.search(k)}
    return {k: restricted(v) if k == "text_config" else v for k, v in kept.items() if v is not None}


def readable(fields: dict) -> bool:
    found = truth(fields)
    if "error" in found:
        print("left out:", fields["model_type"], found["error"])
    return "error" not in found


# -- mutations
def mutations(fields: dict) -> list[dict]:
    """Changes of a configuration; `apply_change` of the tests makes them."""
    changes = []
    for site in ((), ("text_config",)):
        part = fields.get(site[0]) if site else fields
        if not isinstance(part, dict):
            continue
        entry = next(
            (name for name in ENTRIES if isinstance(part.get(name), dict) and part[name]), None
        )
        for key in part:
            if not POSITIONAL.search(key) and key not in (*ENTRIES, "text_config"):
                continue
            path = (*site, key)
            changes += [dropped(path), renamed(path)]
            if site:
                changes.append(moved(path, (key,)))
            if key in ENTRIES and part[key]:
                other = ENTRIES[key == ENTRIES[0]]
                changes += [moved(path, (*site, other))]
                changes += inner(part[key], path)
            elif entry is not None and key not in (*ENTRIES, "text_config"):
                changes.append(moved(path, (*site, entry, key)))
    return changes


def inner(entry: dict, path: tuple) -> list[dict]:
    changes = []
    for key, value in entry.items():
        own = (*path, key)
        changes += [dropped(own), renamed(own), moved(own, (*path[:-1], key))]
        if isinstance(value, dict):
            changes += inner(value, own)
    return changes


def dropped(path: tuple) -> dict:
    return {"op": "drop", "path": list(path)}


def moved(path: tuple, to: tuple) -> dict:
    return {"op": "move", "path": list(path), "to": list(to)}


def renamed(path: tuple) -> dict:
    key = path[-1]
    at = 1 + zlib.crc32(key.encode()) % (len(key) - 1)
    misspelt = key.replace("_", "", 1) if "_" in key and at % 2 else key[:at] + key[at - 1 :]
    return {"op": "rename", "path": list(path), "to": [*path[:-1], misspelt]}


def changed(fields: dict, change: dict) -> dict:
    fields = copy.deepcopy(fields)
    *path, key = change["path"]
    site = fields
    for name in path:
        site = site[name]
    value = site.pop(key)
    if change["op"] != "drop":
        *path, key = change["to"]
        site = fields
        for name in path:
            site = site[name]
        site[key] = value
    return fields


# -- truth
def truth(fields: dict) -> dict:
    """Digests by runs of layers, or the error."""
    try:
        return measured(copy.deepcopy(fields))
    except Exception as error:
        text = re.sub(r"\s+", " ", str(error))[:90]
        return {"error": f"{type(error).__name__}: {text}"}


def measured(fields: dict) -> dict:
    whole = CONFIG_MAPPING[fields["model_type"]].from_dict(fields)
    config = whole.get_text_config(decoder=True)
    without = config.model_type in WITHOUT
    module = None if without else rotary_class(config)(config)
    length = getattr(config, "max_position_embeddings", None)
    count = config.num_hidden_layers
    labels = [None if without else layer_label(config, i) for i in range(count)]
    digests = {one: digest(module, config, one, length) for one in dict.fromkeys(labels)}
    runs = [[one, len(list(same))] for one, same in groupby(labels)]
    found = {"layers": [[digests[one], n] for one, n in runs], "length": length}
    window = getattr(config, "sliding_window", None)
    windowed = WINDOWED & set(getattr(config, "layer_types", None) or ())
    return {**found, "window": window} if windowed else found


def rotary_class(config):
    name = type(config).__module__.replace("configuration_", "modeling_")
    if importlib.util.find_spec(name) is None:  # the type has the code of another
        name = MODEL_MAPPING[type(config)].__module__
    module = importlib.import_module(name)
    stem = re.sub(r"(Text)?Config$", "", type(config).__name__)
    found = {}
    for key, one in vars(module).items():
        own = inspect.isclass(one) and one.__module__ == name and key.endswith("RotaryEmbedding")
        if own and "config" in list(inspect.signature(one.__init__).parameters)[1:2]:
            found[key] = one
    fits = [k for k in found if k.startswith(stem) and not re.search("Vision|Audio|Patch", k)]
    fits = fits or (list(found) if len(found) == 1 else [])
    if not fits:
        raise LookupError(f"no rotary class in {name}: {list(found)}")
    return found[min(fits, key=len)]


def layer_label(config, index: int) -> str | None:
    """Kind of a layer; None where it does not turn."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    kind = kinds[index] if kinds else ""
    if kind in LINEAR:
        return None
    name = config.model_type
    if any(name == one and not turns(config) for one, turns in FLAGS.items()):
        return None
    if name in UNTURNED and not getattr(config, UNTURNED[name])[index]:
        return None
    if name in ONLY_WINDOWED and kind not in WINDOWED and config.sliding_window is not None:
        return None
    return kind


def digest(module, config, kind: str | None, length: int | None):
    """First, second, middle and last frequency, their number, attention factor and base."""
    if kind is None:
        return None
    entry = config.rope_parameters or {}
    labels = getattr(config, "_rope_type_labels", None)
    label = kind
    if labels == ("main", "compress"):
        label = "main" if kind in WINDOWED else "compress"
    nested = hasattr(module, f"{label}_inv_freq")
    entry = entry.get(label, entry)
    kinds = module.rope_type
    rope_type = kinds[label] if isinstance(kinds, dict) and label in kinds else kinds
    if isinstance(kinds, dict) and label not in kinds:
        return None
    if rope_type in ("longrope", "dynamic") and length:
        run(module, label if nested else None, length)
    values = getattr(module, f"{label}_inv_freq" if nested else "inv_freq").double()
    factor = getattr(module, f"{label}_attention_scaling" if nested else "attention_scaling", 1.0)
    values = values[values > 0].flatten().tolist()
    if not all(map(math.isfinite, values)):
        raise ValueError("frequencies are not finite")
    sizes = vars(config)
    head = sizes.get("head_dim") or sizes.get("hidden_size", 0) // sizes.get(
        "num_attention_heads", 1
    )
    if head % 2 and 2 * len(values) > head:
        raise ValueError(f"a head of {head} entries has no place for {2 * len(values)} angles")
    part = sizes.get("qk_rope_head_dim")
    if part and config.model_type not in WITHOUT and 2 * len(values) > part:
        raise ValueError(f"a part of {part} entries has no place for {2 * len(values)} angles")
    picked = [values[i] for i in (0, min(1, len(values) - 1), len(values) // 2, -1)]
    base = entry.get("rope_theta")
    return [*(float(f"{x:.7g}") for x in picked), len(values), float(f"{factor:.7g}"), base]


def run(module, label: str | None, length: int) -> None:
    """A pass at the last position; frequencies then belong to this length."""
    x, positions = torch.zeros(1, 1, 1), torch.tensor([[length - 1]])
    arguments = (label,) if label else ()
    module(x, positions, *arguments)


def main():
    index, configs = {}, {}
    for name, fields in configurations().items():
        cases = []
        for change in [None, *mutations(fields)]:
            found = json.dumps(truth(fields if change is None else changed(fields, change)))
            cases.append([change, index.setdefault(found, len(index))])
        configs[name] = {"fields": fields, "cases": cases}
        print(len(cases), name, flush=True)
    result = {"digests": [*map(json.loads, index)], "configurations": configs}
    write_compressed(HERE / "rope_mutations.json.gz", versions("transformers") | result, sort=False)
    total = sum(len(one["cases"]) - 1 for one in configs.values())
    print(len(configs), "configurations,", total, "mutations")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    main()
