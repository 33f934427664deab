"""Write what configuration classes of transformers refuse or change to `class_rules.json.gz`.

Each rotating type is built with each type of scaling, with other fields of positions, and with
nulls. A case is the error of the class or of its rotary module, else the numbers that come out. It
needs the newest transformers and torch: see `README.md`.
"""

import contextlib
import inspect
import json
import re
import warnings

import torch
from transformers.utils import logging

from tools.parity.goldens import HERE, families, versions, write_compressed
from tools.parity.make_rope_classes import config_classes, model_modules
from tools.parity.rope_classes.variations import CLASSES, needed

NULLS = (
    "rope_theta", "sliding_window", "head_dim", "max_position_embeddings", "num_hidden_layers",
    "partial_rotary_factor",
)  # fmt: skip
ORIGINAL = {"original_max_position_embeddings": 2048}
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, **ORIGINAL},
    "llama3": {"factor": 8.0, **BANDS, **ORIGINAL},
    "longrope": {"factor": 4.0, **ORIGINAL},
    "proportional": {},
    "warped": {"factor": 2.0},
}


def rotary_classes(cls):
    """Classes of rotary modules that this configuration builds, those that name it first."""
    found = {}
    for module in model_modules(cls):
        for name, rotary in vars(module).items():
            own = inspect.isclass(rotary) and issubclass(rotary, torch.nn.Module)
            if own and "RotaryEmb" in name and not re.search("Vision|Axial|Time", name):
                first = [*inspect.signature(rotary.__init__).parameters.values()][1:2]
                with contextlib.suppress(Exception):
                    rotary(cls(**needed(cls)))
                    found[rotary] = bool(first) and cls.__name__ in str(first[0].annotation)
    named = [rotary for rotary, is_named in found.items() if is_named]
    return named or [*found]


def numbers(modules):
    """Number of frequencies, their sum, and the factor, of each table of the modules."""
    found = {}
    for module in modules:
        for name, value in module.named_buffers():
            if name.endswith("inv_freq") and "original" not in name:
                factor = name.replace("inv_freq", "attention_scaling")
                row = [value.numel(), float(f"{value.double().sum().item():.7g}")]
                found[(*row, round(float(getattr(module, factor, 1.0)), 6))] = None
    return sorted(map(list, found))


def outcome(cls, rotary, fields, kept=()):
    try:
        config = cls(**json.loads(json.dumps({**needed(cls), **fields})))
        modules = [one(config) for one in rotary]
        for one in modules:  # splits its frequencies by axis
            if isinstance(axes := getattr(one, "mrope_section", None), list | tuple):
                one(torch.zeros(1, 2, 1), torch.zeros(len(axes), 1, 2, dtype=torch.long))
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}".replace("\n", " ")[-140:]}
    result = {"numbers": numbers(modules)}
    part = "qk_nope_head_dim" in vars(config) and config.qk_rope_head_dim
    if part and (wide := [row[0] for row in result["numbers"] if 2 * row[0] > part]):
        return {"refused": f"RuntimeError: {2 * wide[0]} of {part} entries"}  # in a forward pass
    for name in kept:
        result[name] = vars(config).get(name)
    return json.loads(json.dumps(result, default=str))


def scaled(cls, count):
    lists = {"short_factor": [1.0] * count, "long_factor": [2.0] * count}
    for name, entry in SCALINGS.items():
        entry = {"rope_type": name, **entry, **(lists if name == "longrope" else {})}
        yield f"rope_scaling {name}", {"rope_scaling": entry}
        yield f"rope_parameters {name}", {"rope_parameters": {"rope_theta": 10000.0, **entry}}


def changed(cls, config):
    """Other values of fields, one at a time."""
    for name in NULLS:
        yield f"null {name}", {name: None}
    names = cls.__dataclass_fields__
    head = vars(config).get("head_dim")
    if isinstance(head, int):
        yield "head_dim", {"head_dim": 2 * head}
    elif "head_dim" in names:
        yield "head_dim", {"head_dim": 48}
    share = vars(config).get("partial_rotary_factor")
    yield "partial_rotary_factor", {"partial_rotary_factor": 0.25 if share == 0.5 else 0.5}
    kinds = vars(config).get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        other = ["full_attention" if i % 2 else "sliding_attention" for i in range(len(kinds) - 1)]
        yield "layer_types", {"layer_types": [*other, "sliding_attention"]}
    if "sliding_window" in names:
        yield "sliding_window", {"sliding_window": 80}
        if "use_sliding_window" in names:
            yield "use_sliding_window", {"use_sliding_window": True, "sliding_window": 80}


def measured(cls):
    rotary = rotary_classes(cls)
    plain = outcome(cls, rotary, {})
    if "numbers" not in plain:
        return {}
    config = cls(**needed(cls))
    count = plain["numbers"][0][0] if plain["numbers"] else 16
    cases = {name: (fields, ()) for name, fields in scaled(cls, count)}
    for name, fields in changed(cls, config):
        cases[name] = fields, tuple(fields)
    rows = {
        name: {"fields": f, **outcome(cls, rotary, f, kept)} for name, (f, kept) in cases.items()
    }
    names = [one.__name__ for one in rotary]
    return {"needed": needed(cls), "modules": names, "cases": rows}


def main():
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    CLASSES.update(config_classes())
    types = {name: measured(CLASSES[name]) for name in families()["rotary"] if name in CLASSES}
    write_compressed(HERE / "class_rules.json.gz", {**versions("transformers"), "types": types})


if __name__ == "__main__":
    main()
