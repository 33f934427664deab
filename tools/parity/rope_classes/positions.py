"""Positions other than rotations, from the parameters, buffers and modules of a built class.

Evidence is a tensor with positions, or a module that computes them: a table that is added to
embeddings, a bias or relative vectors in attention, a convolution over positions.
"""

import contextlib
import importlib
import inspect
import re
import sys
from pathlib import Path

import torch

from .variations import CLASSES, merged, needed

TENSORS = {  # by the name of a tensor and of the module that owns it
    "bias": r"relative_(attention_)?bias|rel(ative)?_pos|relative_(position|k_proj|key|coords)"
    r"|rel_(attn_)?emb|emb_rel|alibi|slopes|bias_table|attention_bias(es)?\b|r_r_bias|pos_bias"
    r"|linear_pos|distance_embedding|rpb\b|rpb_embed|rel_logits_proj|rel_embeddings",
    "table": r"position(s|al)?_?(emb|enc)|\bwpe\b|\bpos_?(emb|enc)|embed_positions|pos_embed"
    r"|time_embeddings|(row|column)_embed|position(s|al)?_?(table|weights)|pe\b",
}
COMPUTED = {  # by the name of the class of a module without tensors
    "bias": r"Rel(ative)?\w*(Pos|Bias)|Alibi|SegmentPosition",
    "convolution": r"PositionalConv",
    "table": r"Sinus|Sine|Position(al)?(Emb|Enc)|PositionEmbed",
}
ALIBI = re.compile(r"\balibi\b|build_alibi_tensor")
PURE = re.compile(r"^(Falcon)?Mamba|^Rwkv|^xLSTM")  # families without attention
SKIPPED = re.compile(
    r"rot(ary|ate)|rope|inv_freq|position_ids|dropout|Interpolat|timestep|Diffusion", re.IGNORECASE
)
PASSED = r"^(?!interpolate|bool).*(pos(ition)?(s|al)?_(emb|enc)|query_pos|_pe$|pos$)"
SWITCHES = re.compile(r"relative|position|(^|_)pos_|alibi|rel_pos|abs_pos")
SIZES = {  # fields without which a class cannot be built
    "autoformer": {"prediction_length": 24, "context_length": 48},
    "informer": {"prediction_length": 24, "context_length": 48},
    "time_series_transformer": {"prediction_length": 24, "context_length": 48},
    "idefics": {"use_resampler": True},
}


def evidence(model):
    """Kinds of what gives the model positions: "table", "bias", "convolution"."""
    found = []
    for path, module in model.named_modules():
        kind, owner = type(module).__name__, path.rsplit(".", 1)[-1]
        computed = next((p for p, name in COMPUTED.items() if re.search(name, kind)), None)
        if computed and not SKIPPED.search(kind):
            found.append(computed)
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        tensors += [(k, v) for k, v in vars(module).items() if isinstance(v, torch.Tensor)]
        for name, tensor in tensors if computed != "bias" else ():
            words = f"{owner} {name}"
            if SKIPPED.search(f"{kind} {words}") or tensor.dim() < 1:
                continue
            parts = (p for p, pattern in TENSORS.items() if re.search(pattern, words))
            found += [p for p in parts if p == "bias" or tensor.dim() > 1][:1]
    own = type(model).__module__.startswith("transformers.models")
    if own and ALIBI.search(inspect.getsource(type(model))):
        found.append("bias")
    return [*dict.fromkeys(found)]


def modules_with(cls):
    """Modules that take this configuration, for a type without a model of its own."""
    folder = Path(inspect.getfile(cls)).parent
    found = []
    for file in sorted(folder.glob("*.py")):
        if re.match("modeling|vision|perceiver", file.stem):
            module = importlib.import_module(f"{cls.__module__.rsplit('.', 1)[0]}.{file.stem}")
            found += [m for m in vars(module).values() if takes(m, cls, module)]
    return found


def takes(module_class, cls, module):
    if not inspect.isclass(module_class) or not issubclass(module_class, torch.nn.Module):
        return False
    arguments = [*inspect.signature(module_class.__init__).parameters.values()][1:]
    if module_class.__module__ != module.__name__ or not arguments:
        return False
    first, configs = arguments[0], [c for c in CLASSES.values() if c.__module__ == cls.__module__]
    alone = first.annotation is inspect.Parameter.empty and len(configs) == 1
    return cls.__name__ in str(first.annotation).split("|")[0] or (alone and first.name == "config")


def inside_parent(cls, model_classes_of):
    """Modules with this configuration, inside a model of the type that has the type as a part."""
    for parent in CLASSES.values():
        names = [
            k for k, v in parent.sub_configs_defaults.items() if v.model_type == cls.model_type
        ]
        parts = [name.removesuffix("_config") for name in names]
        fields = {
            f.format(part) for part in parts for f in ("{}", "embed_{}", "{}_model", "{}_tower")
        }
        for model_class in model_classes_of(parent)[:2] if names else ():
            with contextlib.suppress(Exception), torch.device("meta"):
                own = {name: {"model_type": cls.model_type} for name in names}
                own = merged({**needed(parent), **SIZES.get(parent.model_type, {})}, own)
                model = model_class(parent(**own))
                inner = {path: module for path, module in model.named_modules() if path}
                named = [m for path, m in inner.items() if path.rsplit(".", 1)[-1] in fields]
                named += [
                    m for m in inner.values() if any(isinstance(v, cls) for v in vars(m).values())
                ]
                if named:
                    return named[:1]
    return []


def built(classes, cls, fields):
    """The models that need nothing but a configuration."""
    models = []
    for model_class in classes:
        # Libraries that only a forward pass or a loss needs.
        vars(sys.modules[model_class.__module__])["requires_backends"] = lambda *_: None
        with contextlib.suppress(Exception), torch.device("meta"), torch.no_grad():
            models.append(model_class(cls(**fields)))
    return models


def kind_of(cls, model_classes_of, **fields):
    """`{"kind": …}` of a type with these fields; nothing if no class builds or one rotates.

    None where positions are an argument of the model.
    """
    fields = merged({**needed(cls), **SIZES.get(cls.model_type, {})}, fields)
    classes = model_classes_of(cls)
    plain = [m for m in classes if "For" not in m.__name__]
    models = built([*plain, *[m for m in classes if m not in plain][:3]], cls, fields)
    models = models or inside_parent(cls, model_classes_of)
    models = models or built(modules_with(cls), cls, fields)
    if not models or any("Rotary" in type(m).__name__ for one in models for m in one.modules()):
        return {}
    if found := {part for model in models for part in evidence(model)}:
        return {"kind": "+".join(sorted(found))}
    if all(PURE.search(type(model).__name__) for model in models):
        return {"kind": "linear"}
    arguments = {name for model in models for name in inspect.signature(model.forward).parameters}
    return {"kind": None if any(re.search(PASSED, name) for name in arguments) else "none"}


def measured(cls, model_classes_of):
    """Kind with the defaults of the class, and with each switch of positions changed."""
    row = kind_of(cls, model_classes_of)
    if not row:
        return {"kind": None}
    config = cls(**{**needed(cls), **SIZES.get(cls.model_type, {})})
    switches = {}
    for name in sorted(cls.__dataclass_fields__):
        value = config.__dict__.get(name)
        if isinstance(value, bool) and SWITCHES.search(name):
            other = kind_of(cls, model_classes_of, **{name: not value})
            if other and other != row:
                switches[name] = {"default": value, "otherwise": other["kind"]}
    return {**row, **({"switches": switches} if switches else {})}
