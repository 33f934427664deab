"""Groups of layers that do the same, from a pass that was watched."""

import json
import math
import re

import torch

from . import rotation
from .positions import PURE, evidence

LINEAR = re.compile(
    r"Mamba|SSM|ShortConv|GatedDelta|LinearAttention|RGLRU|Rglru|Recurrent|Rwkv|RWKV|Lightning|KimiDelta"
    r"|DeltaNet|DeltaAttention|KDA|xLSTM|mLSTM|sLSTM|Lfm2\w*Conv|LRU|Retention"
)


def rounded(x):
    return float(f"{x:.9g}")


def chosen(count):
    return sorted({0, min(1, count - 1), *range(0, count, 8), count - 1})


def buffers(model):
    for name, value in [*model.named_buffers()]:
        if "inv_freq" in name and value.dim() == 1:
            yield value.double()


def frequencies_of(model, measured):
    """All frequencies with zeros: of the buffer that the angles show, else as measured."""
    turning = sorted(measured, reverse=True)
    for buffer in buffers(model):
        values = sorted(x for x in buffer.tolist() if x)
        if len(values) == len(turning):
            pairs = zip(reversed(values), turning, strict=True)
            if all(math.isclose(a, b, rel_tol=2e-6, abs_tol=1e-9) for a, b in pairs):
                return _in_order_of(measured, buffer.tolist()), True
    return list(measured), False


def _in_order_of(measured, buffer):
    """Frequencies of a buffer in the order of the pairs, which ERNIE's buffer does not have."""
    if 0 in buffer:
        return buffer
    ranks = sorted(range(len(measured)), key=measured.__getitem__)
    return [x for _, x in sorted(zip(ranks, sorted(buffer), strict=True))]


def rotation_fields(model, call, last):
    """Fields of a group that a kind of call decides."""
    found = rotation.rotation_of(call)
    if found is None:
        return {"kind": None, "function": call.function.__name__}
    angles, pairs = found["angles"][:, :last], found["pairs"]
    fields = {
        "turning": 2 * len(pairs),
        "attention_factor": found["factor"] and round(found["factor"], 7),
        "function": call.function.__name__,
    }
    steps = rotation.steps_of(angles)
    if steps is not None:
        measured = steps.tolist()
        values, known = frequencies_of(model, measured)
        indices = chosen(len(values))
        fields |= {
            "kind": "rotary",
            "count": len(values),
            "indices": indices,
            "buffer": known,
            "frequencies": [rounded(values[i]) for i in indices],
            "pairing": rotation.pairing_of(pairs, len(values)),
        }
    else:
        axes = rotation.axes_of(angles)
        fields |= {
            "kind": "axial",
            "pairing": rotation.pairing_of(pairs),
            "count": len(pairs),
            "axes": axes
            and [
                {
                    "count": len(a["pairs"]),
                    "pairs": sorted(a["pairs"])[:4],
                    "frequencies": [rounded(x) for x in sorted(a["frequencies"], reverse=True)],
                }
                for a in sorted(axes, key=lambda axis: min(axis["pairs"]))
            ],
        }
    return {**fields, "outs": found["outs"], "width": found["width"]}


def window_of(watch, state, layer):
    masks = [watch.masks[m] for m in state["masks"]]
    fields = {}
    if len({(name, id(config)) for name, config, _ in masks}) == 1:
        name, config, mask = masks[0]
        for word, key, field in (
            ("sliding", "sliding_window", "window"),
            ("chunk", "attention_chunk_size", "chunk"),
        ):
            if word in name:
                fields[field] = getattr(config, key, None)
        if mask.dim() == 4:
            seen = mask[0, 0] if mask.dtype == torch.bool else mask[0, 0] == 0
            row = seen.shape[0] // 2
            at = torch.nonzero(seen[row]).flatten()
            if fields and len(at) and seen.shape[0] == seen.shape[1]:
                fields["sees"] = [row - int(at[0]), int(at[-1]) - row]
    else:
        for module in layer.modules():
            value = getattr(module, "sliding_window", None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                fields["window"] = value
    return fields


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
    modules = {id(m) for m in layer.modules()}
    linear = bool(modules & watch.linear.keys())
    fields = {"stack": key[0], "layer_type": layer_type_of(config, layer, key[1], count)}
    mixes = ["attention"] if state["softmax"] else []
    named = str(fields["layer_type"])
    linear = (
        linear
        or named.startswith("hybrid")
        or (not mixes and named in ("linear_attention", "mamba", "conv"))
    )
    fields["mixes"] = "+".join(mixes + ["linear"] * linear) or "neither"
    marked = state["heads"][-1] if state["heads"] else None
    if marked:
        kind, width, places, order = marked
        turning = dict(kinds[kind])
        outs, whole = set(turning.pop("outs", [])), turning.pop("width", None)
        where = [p for p, entry in zip(places, order, strict=True) if entry in outs] or list(places)
        fields |= {**turning, "head_dim": width, "place": [min(where), max(where)]}
        if len(where) != max(where) - min(where) + 1 and turning.get("pairing") != "half":
            fields["place_gaps"] = True
    elif state["calls"]:
        turning = dict(kinds[state["calls"][0]])
        outs, whole = turning.pop("outs", []), turning.pop("width", None)
        fields |= {**turning, "head_dim": None, "width_of_call": whole, "place": None}
    else:
        fields |= {
            "kind": "none",
            "head_dim": min(state["widths"]) if len(set(state["widths"])) == 1 else None,
        }
    if not state["softmax"] and linear:
        fields["kind"] = "linear"
    main = marked[0] if marked else state["calls"][0] if state["calls"] else None
    others = [kinds[n] for n in dict.fromkeys(state["calls"]) if n != main]
    if others := [o for o in others if o["kind"] == "rotary"]:
        keys = ("width", "turning", "count", "pairing", "indices", "frequencies")
        fields["others"] = [
            {k: o[k] for k in keys} | {"place": [min(o["outs"]), max(o["outs"])]} for o in others
        ]
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


def groups_of(model, config, watch, last=None):
    watch.linear = linear_modules(model)
    kinds = [rotation_fields(model, call, last) for call in watch.calls]
    groups = {}
    other = [*evidence(model)]
    stacks = {k[0] for k, v in watch.layers.items() if k and (v["softmax"] or v["calls"])}
    for key in watch.modules:
        if not watch.layers[key]["ran"] or (stacks and key[0] not in stacks):
            continue
        fields = layer_fields(model, config, watch, key, kinds)
        if fields["kind"] == "none" and fields["mixes"] != "neither" and not watch.calls:
            fields["kind"] = "bias" if watch.alibi else other[0] if other else "none"
        groups.setdefault(json.dumps(fields, sort_keys=True), []).append(key[1])
    return [{**json.loads(fields), "layers": layers} for fields, layers in groups.items()]
