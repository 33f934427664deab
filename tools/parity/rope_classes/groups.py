"""Groups of layers that do the same, from a pass that was watched."""

import json
import math
import re

from . import rotation
from .positions import PURE, evidence

LINEAR = re.compile(
    r"Mamba|SSM|ShortConv|GatedDelta|LinearAttention|RGLRU|Rglru|Recurrent|Rwkv|RWKV|Lightning|KimiDelta"
    r"|DeltaNet|DeltaAttention|KDA|xLSTM|mLSTM|sLSTM|Lfm2\w*Conv|LRU|Retention"
)


def chosen(count):
    return sorted({0, min(1, count - 1), *range(0, count, 8), count - 1})


def frequencies_of(model, measured):
    """All frequencies with zeros: of the buffer that the angles show, else as measured."""
    turning = sorted(measured, reverse=True)
    for name, value in [*model.named_buffers()]:
        if "inv_freq" not in name or value.dim() != 1:
            continue
        buffer = value.double().tolist()
        values = sorted(x for x in buffer if x)
        if len(values) == len(turning):
            pairs = zip(reversed(values), turning, strict=True)
            if all(math.isclose(a, b, rel_tol=2e-6, abs_tol=1e-9) for a, b in pairs):
                return _in_order_of(measured, buffer)
    return list(measured)


def _in_order_of(measured, buffer):
    """Frequencies of a buffer in the order of the pairs, which ERNIE's buffer does not have."""
    if 0 in buffer:
        return buffer
    ranks = sorted(range(len(measured)), key=measured.__getitem__)
    return [x for _, x in sorted(zip(ranks, sorted(buffer), strict=True))]


def rotation_fields(model, call):
    """Fields of a group that a kind of call decides."""
    found = rotation.rotation_of(call)
    if found is None:
        return {"kind": None}
    pairs, steps = found["pairs"], rotation.steps_of(found["angles"])
    fields = {
        "kind": "axial" if steps is None else "rotary",
        "turning": 2 * len(pairs),
        "attention_factor": found["factor"] and round(found["factor"], 7),
        "count": len(pairs),
        "outs": found["outs"],
    }
    if steps is None:
        return fields | {"pairing": rotation.pairing_of(pairs)}
    values = frequencies_of(model, steps.tolist())
    indices = chosen(len(values))
    return fields | {
        "count": len(values),
        "indices": indices,
        "frequencies": [float(f"{values[i]:.9g}") for i in indices],
        "pairing": rotation.pairing_of(pairs, len(values)),
    }


def window_of(watch, state, layer):
    """The window of the mask that the layer was given, else of its modules."""
    masks = {(name, id(config)): config for name, config, _ in map(watch.masks.get, state["masks"])}
    if len(masks) == 1:
        (((name, _), config),) = masks.items()
        return {"window": getattr(config, "sliding_window", None)} if "sliding" in name else {}
    values = [getattr(module, "sliding_window", None) for module in layer.modules()]
    values = [value for value in values if type(value) is int and value > 0]
    return {"window": values[-1]} if values else {}


def layer_type_of(config, layer, n, count):
    for module in [layer, *layer.children()]:
        for name in ("attention_type", "layer_type", "block_type"):
            value = getattr(module, name, None)
            if isinstance(value, str):
                return value
    kinds = getattr(config, "layer_types", None)
    return kinds[n] if kinds and len(kinds) == count else None


def layer_fields(model, config, watch, key, kinds):
    state, layer = watch.layers[key], watch.modules[key]
    count = sum(k[0] == key[0] for k in watch.modules)
    named = str(layer_type_of(config, layer, key[1], count))
    linear = bool({id(m) for m in layer.modules()} & watch.linear.keys())
    linear = linear or named.startswith("hybrid")
    if not state["softmax"] and named in ("linear_attention", "mamba", "conv"):
        linear = True
    mixes = ["attention"] * bool(state["softmax"]) + ["linear"] * linear
    fields = {"stack": key[0], "mixes": "+".join(mixes) or "neither"}
    if state["heads"]:
        kind, width, places, order = state["heads"][-1]
        turning = dict(kinds[kind])
        outs = set(turning.pop("outs", []))
        where = [p for p, entry in zip(places, order, strict=True) if entry in outs] or list(places)
        fields |= {**turning, "head_dim": width, "place": [min(where), max(where)]}
    elif state["calls"]:
        fields |= {**kinds[state["calls"][0]], "head_dim": None, "place": None}
        fields.pop("outs", None)
    else:
        width = min(state["widths"]) if len(set(state["widths"])) == 1 else None
        fields |= {"kind": "none", "head_dim": width}
    if not state["softmax"] and linear:
        fields["kind"] = "linear"
    return {**fields, **(window_of(watch, state, layer) if state["softmax"] else {})}


def linear_modules(model):
    """Modules that mix tokens without attention, by the names of their classes."""
    family = type(model).__name__
    found = {}
    for module in model.modules():
        name = type(module).__name__
        common = 0
        while common < min(len(name), len(family)) and name[common] == family[common]:
            common += 1
        if (LINEAR.search(name[common:]) and "Indexer" not in name) or PURE.search(name):
            found[id(module)] = module
    found.pop(id(model), None)
    return found


def groups_of(model, config, watch):
    watch.linear = linear_modules(model)
    kinds = [rotation_fields(model, call) for call in watch.calls]
    groups = {}
    other = evidence(model)
    stacks = {k[0] for k, v in watch.layers.items() if k and (v["softmax"] or v["calls"])}
    for key in watch.modules:
        if not watch.layers[key]["ran"] or (stacks and key[0] not in stacks):
            continue
        fields = layer_fields(model, config, watch, key, kinds)
        if fields["kind"] == "none" and fields["mixes"] != "neither" and not watch.calls:
            fields["kind"] = "bias" if watch.alibi else other[0] if other else "none"
        groups.setdefault(json.dumps(fields, sort_keys=True), []).append(key[1])
    return [{**json.loads(fields), "layers": layers} for fields, layers in groups.items()]
