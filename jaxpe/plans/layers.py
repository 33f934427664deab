"""Groups of layers that treat positions alike, before any frequency is computed."""

import contextlib
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxpe._core.errors import InputError
from jaxpe.plans.configuration import Model, head_size
from jaxpe.plans.fields import (
    CHUNKED,
    FULL,
    INDEXED,
    LINEAR,
    MOST_LAYERS,
    SLIDING,
    Fields,
    checked_list,
)

Kind = str  # "rotary", "axial", "none", "linear", or parts such as "bias+table"

UNSCALED = "unscaled_attention"  # layers that a scaling does not apply to
INDEXER = ", indexer"  # suffix of the name of a group
_RENAMED = {  # as transformers 5 renames what earlier files say
    "mamba": LINEAR, "attention": FULL, "recurrent": LINEAR, "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED, "linear": LINEAR, "full": FULL, "sliding": SLIDING,
}  # fmt: skip
_LINEAR = ("linear_attention", "conv", "mamba", "recurrent", "kda")
_EMPTY = ("moe", "mlp", "dense")  # layers without attention
WINDOWED = (SLIDING, "hybrid_sliding", "reference_sliding_attention")
# Fields with the number of layers; the first present one is used.
_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")


class LayerGroup(NamedTuple):
    """Group of layers that treat positions alike.

    Attributes:
        name: kind of layer, as the model's class names it.
        layers: indices, from 0; None if the file does not give their number.
        kind: "rotary", "none", "linear" (recurrent, convolution, state space), or what positions
            act by: "table", "bias", "convolution", joined by "+".
        window: positions that a query sees, itself included; None for all.
        two_sided: whether the window reaches to both sides.
        head_dim: width of a query at the logits.
        width: width of the rotary part of the head, of which a share may rotate.
        place: place of the rotary part in the head: "first", "last", or "latent" if it is separate;
            "indexer" or "indexer, last" in the heads of an indexer.
        pairing: "half" for entry i with i + width/2, "interleaved" for 2i with 2i + 1; None
            without rotation.
        base: θ of these layers, if the file lists θ by layer.
    """

    name: str
    layers: tuple[int, ...] | None
    kind: Kind
    window: int | None
    two_sided: bool
    head_dim: int
    width: int
    place: str
    pairing: str | None
    base: float | None = None


def layer_groups(model: Model) -> tuple[LayerGroup, ...]:
    """Groups of layers of a model, ordered by their first layers.

    Raises:
        InputError: fields that contradict each other, or no width of a head.
    """
    names = layer_kinds(model)
    window = model.family.window.get("field", "sliding_window")
    window_fields = (window,) if window in model.family.defaults else ()
    for name in (*model.family.reads, *window_fields, model.family.flag.get("field", "")):
        model.fields.get(name)  # marks the field as used, even if it changes nothing
    bases = _layer_list(model, model.family.base_by_layer, names)
    rotations = _rotation_list(model, names)
    groups: dict[LayerGroup, list[int]] = {}
    for index, name in enumerate(names or [model.family.layers.get("all", FULL)]):
        base = bases[index] if bases else None
        layer = model._replace(fields=model.fields.layer_fields(index))
        group = _group(layer, name, rotations[index] if rotations else None, base)
        groups.setdefault(group, []).append(index)
    if model.family.indexer:
        rotary = [one for one in groups if one.kind == "rotary" and one.name not in WINDOWED]
        groups |= {_indexer(model, group): groups[group] for group in rotary}
    return tuple(
        g._replace(layers=tuple(indices) if names else None) for g, indices in groups.items()
    )


def _group(model: Model, name: str, turns: Any, base: Any) -> LayerGroup:
    family, fields = model.family, model.fields
    kind = _kind(model, name)
    if kind == "rotary" and (turns == 0 or base == 0 or _lacks_base(model, name)):
        kind = "none"
    attends = name not in (*_LINEAR, *_EMPTY)
    window, two_sided = _window(model, name) if attends else (None, False)
    shared = (name, None, kind, window, two_sided)
    if kind != "rotary":
        head = 0
        with contextlib.suppress(InputError):  # the file need not give it
            head = head_size(model) if attends else 0
        return LayerGroup(*shared, head, 0, "first", None)
    pairing = family.pairing
    if pairing not in ("half", "interleaved"):
        pairing = "interleaved" if fields.get(pairing) else "half"
    base = None if base is None else float(base)
    if family.latent:
        field = family.heads.get(name) if not fields.get("per_layer_config") else None
        nope = fields.integer(f"{'swa_' * bool(field)}qk_nope_head_dim", least=0) or 0
        rotated = head_size(model, field) - nope if field else head_size(model, "qk_rope_head_dim")
        width = rotated + nope if family.rotated else rotated
        return LayerGroup(*shared, rotated + nope, width, "latent", pairing, base)
    # `per_layer_config` replaces the fields for the widths of kinds of layers.
    per_layer = fields.get("per_layer_config")
    head = head_size(model, "head_dim" if per_layer else family.heads.get(name, "head_dim"))
    width = fields.integer(family.width, least=2) if family.width else None
    return LayerGroup(*shared, head, width or head, family.place, pairing, base)


def _indexer(model: Model, group: LayerGroup) -> LayerGroup:
    """Heads that choose the keys of sparse attention, with a separate pairing."""
    rule, fields = model.family.indexer, model.fields
    stated = fields.get(rule["field"]) if "field" in rule else None
    pairing = rule["pairing"] if stated is None else ("interleaved" if stated else "half")
    head = fields.integer("index_head_dim") or 128
    place = rule.get("place", "indexer")
    return group._replace(
        name=f"{group.name}{INDEXER}", head_dim=head, place=place, pairing=pairing
    )


def _lacks_base(model: Model, name: str) -> bool:
    """Whether a kind of layer does not rotate, since its entry or its base is null."""
    family, entry = model.family, model.entry or model.family.entry or {}
    label = family.labels.get(name, name)
    if family.optional:  # parts by kind of layer have no base for all layers
        beside = model.fields.stated.get("rope_theta", family.base)
        return label in entry or entry.get("rope_theta", beside) is None
    return family.by_kind and not family.bases and label in entry and not entry[label]


def _kind(model: Model, name: str) -> Kind:
    family, fields = model.family, model.fields
    if name in _LINEAR:
        return "linear"
    if name in _EMPTY:
        return "none"
    kind = family.kind
    if family.kinds:
        parts = (
            part for part, names in family.kinds.items() if not names or any(map(fields.get, names))
        )
        return "+".join(parts) or "none"
    if family.flag and kind == "rotary":
        stated = str(fields.get(family.flag["field"])).lower()
        kind = family.flag.get(stated, family.flag["otherwise"])
    if kind != "rotary":
        return kind
    if family.turning == "windowed":
        turns = fields.get("sliding_window") is None or name in WINDOWED
    else:
        turns = family.turning is None or name in family.turning
    return "rotary" if turns else "none"


def _window(model: Model, name: str) -> tuple[int | None, bool]:
    """Window of a kind of layer, and whether it reaches to both sides."""
    rule, fields = model.family.window, model.fields
    if name == CHUNKED:
        return fields.integer("attention_chunk_size"), False
    if name not in WINDOWED and not rule.get("all"):
        return None, False
    before = fields.integer(rule["before"], least=0) if "before" in rule else None
    if before is not None:
        return before + 1, False
    stated = fields.integer("sliding_window", least=0) if rule.get("stated") else None
    if stated is not None:
        return stated or None, False
    size = fields.get(rule.get("field", "sliding_window"))
    off = "use_sliding_window" in model.family.defaults and not fields.get("use_sliding_window")
    if (off and not rule.get("listed")) or size is False or size is None or size == -1:
        return None, False
    size = fields.integer(rule.get("field", "sliding_window"), least=0) or 0
    size = size // 2 if rule.get("half") else size
    if rule.get("both") in (True, model.part):  # the mask is |i − j| ≤ size
        return size + 1, True
    if fields.get("use_bidirectional_attention") in (True, "all"):
        return size // 2 + 1, True
    return size or None, False


def _rotation_list(model: Model, names: list[str] | None) -> list[Any] | None:
    """Numbers by layer, 0 for no rotation, from the file's list or its interval."""
    name = model.family.unturned
    if not name:
        return None
    interval = model.fields.integer("no_rope_layer_interval") or 4
    if model.fields.sequence(name):
        return _layer_list(model, name, names)
    counts = range(1, len(names or ()) + 1)
    if model.family.layers.get("from_end"):
        counts = range(len(counts))[::-1]
    return [int(count % interval != 0) for count in counts]


def _layer_list(model: Model, name: str, names: list[str] | None) -> list[Any] | None:
    """Numbers by layer, from a field of the file; None without one."""
    stated = model.fields.sequence(name) if name else None
    if not stated or names is None:
        return None
    return checked_list(model.fields, name, stated, len(names), (int, float), "a number")


def layer_kinds(model: Model) -> list[str] | None:
    """Kind of each layer, from the file's list or the rule of its model type; else None."""
    fields = model.fields
    name = next((one for one in _COUNTS if fields.get(one) is not None), _COUNTS[0])
    count = fields.integer(name, most=MOST_LAYERS)
    rule = model.family.layers
    find = _RULES[next((key for key in _RULES if key in rule), "all")]
    kinds = find(model, rule, range(count or 0))  # always, so that its fields count as used
    derived = None if count is None else kinds
    name = rule.get("field", "layer_types")
    # Other classes ignore a list of kinds.
    listing = rule or not model.has_rules or name in model.family.reads
    stated = fields.sequence("layer_types") if listing else None
    if stated is None and name != "layer_types" and isinstance(fields.get(name), list):
        stated = fields.sequence(name)
    if stated and rule.get("with_mlp") and "mlp" in stated:
        stated, count = stated[::2], None if count is None else count // 2
    if not stated and count is not None and count != rule.get("count", count):
        raise InputError(
            f"{fields.source} has no {name}, which all but {rule['count']} layers need"
        )
    if not stated:
        windows = [int(kind == SLIDING) for kind in derived or ()]
        if fields.stated.get(rule.get("repeated", "")) == windows:  # the class ignores the list
            fields.get(rule["repeated"])
        return derived
    names = checked_list(fields, "layer_types", stated, count, str, "a name")
    renamed = {**_RENAMED, **rule.get("names", {})}
    kinds = [renamed.get(one, one) for one in names]
    return [*kinds[:-1], rule["last"]] if rule.get("ends") else kinds


def _periodic(model: Model, rule: Mapping[str, Any], layers: range) -> list[str]:
    """Two kinds: every p-th layer, and the others; first and last layers may be exceptions."""
    field, then, other = rule.get("field"), rule["then"], rule["else"]
    stated = model.fields.get(field) if field else None
    if isinstance(stated, str) and stated:  # EXAONE 4: "LLLG", local and global
        return [then if stated[i % len(stated)] == "G" else other for i in layers]
    if field and field in model.fields.stated and not stated:
        return [then] * len(layers)  # a null or zero turns the windows off
    period = (model.fields.integer(field) if field else None) or rule["period"]
    phase, first, last = rule.get("phase", period - 1), rule.get("first", 0), rule.get("last")
    phase = (model.fields.integer(phase, least=0) or 0) if isinstance(phase, str) else phase
    indices = reversed(layers) if rule.get("from_end") else layers
    kinds = [then if i % period == phase else other for i in indices]
    kinds[:first] = [last or then] * len(kinds[:first])
    return [*kinds[:-1], last] if last else kinds


def _cyclic(model: Model, rule: Mapping[str, Any], layers: range) -> list[str]:
    """Kind of each layer from the file; else a cycle, from the file or the type."""
    fields, name = model.fields, rule.get("each", "")
    names = {**_RENAMED, **rule.get("names", {})}
    stated = _nested(fields, name or rule.get("cycle_field", ""))
    if name and stated:
        count = len(layers) or None
        for one in (listed := checked_list(fields, name, list(stated), count, object, "a kind")):
            if str(one) not in names:
                known = ", ".join(rule["names"])
                raise InputError(
                    f"{fields.source}: {name} has {reprlib.repr(one)}, not one of {known}"
                )
        return [names[str(one)] for one in listed]
    first = [] if stated else rule.get("first", [])
    cycle = [names.get(one, one) for one in stated or rule["cycle"]]
    return [first[i] if i < len(first) else cycle[i % len(cycle)] for i in layers]


def _nested(fields: Fields, name: str) -> Any:
    """A field that is a list or a text, or one inside an object, as in `object.field`."""
    outer, _, inner = name.partition(".")
    value = fields.mapping(outer).get(inner) if inner else fields.get(name)
    if not isinstance(value, list | str | None):
        raise fields.error(outer, ", not a list")
    return value


def _index_list_kinds(model: Model, rule: Mapping[str, Any], layers: range) -> list[str]:
    """Kinds by a list of indices; one kind if the file has no list and no other rule applies."""
    listed = rule["listed"]  # a field, or the layers themselves
    listed = _nested(model.fields, listed) if isinstance(listed, str) else listed
    if listed is None and "cycle" in rule:
        return _cyclic(model, rule, layers)
    other = rule.get("otherwise", rule["else"]) if listed is None else rule["else"]
    start = rule.get("start", 0)
    return [rule["then"] if i + start in (listed or ()) else other for i in layers]


def _window_kinds(model: Model, rule: Mapping[str, Any], layers: range) -> list[str]:
    """Qwen 2 and others: a window in some layers, if the file enables windows."""
    fields, name = model.fields, rule["windowed"]
    used = "use_sliding_window" not in model.family.defaults or fields.get("use_sliding_window")
    on = bool(used) and fields.get("sliding_window") is not None
    if name == "all":
        return [rule.get("then", SLIDING) if on else FULL] * len(layers)
    edge = fields.integer("max_window_layers", least=0) or 0
    windows = layers[edge:] if name == "from" else layers[:edge:2]
    return [SLIDING if on and i in windows else FULL for i in layers]


def _rotation_kinds(model: Model, rule: Mapping[str, Any], layers: range) -> list[str]:
    """Chunks for the rotating layers of Llama 4; windows for the others of SmolLM3."""
    fields, chunked = model.fields, rule["by_turning"] == "chunks"
    size = fields.get("attention_chunk_size" if chunked else "sliding_window")
    on = size is not None and (chunked or bool(fields.get("use_sliding_window")))
    turned = _rotation_list(model, [FULL] * len(layers) or None) or [1] * len(layers)
    local = CHUNKED if chunked else SLIDING
    return [local if on and bool(turns) == chunked else FULL for turns in turned]


def _cohere2_moe(model: Model, rule: Mapping[str, Any], layers: range) -> list[str]:
    """One pattern for the first dense layers, another for the rest."""
    fields = model.fields
    dense = fields.integer("first_k_dense_replace", least=0) or 0
    first = fields.integer("prefix_dense_sliding_window_pattern") or 1
    rest = fields.integer("sliding_window_pattern") or 4
    periods = [(i, first) if i < dense else (i - dense, rest) for i in layers]
    return [SLIDING if (i + 1) % period else FULL for i, period in periods]


# Rules by the key of `layers` that names them: kinds of the layers from their indices.
_RULES: dict[str, Callable[[Model, Mapping[str, Any], range], list[str]]] = {
    "listed": _index_list_kinds,
    "period": _periodic,
    "cycle": _cyclic,
    "windowed": _window_kinds,
    "by_turning": _rotation_kinds,
    "dense_prefix": _cohere2_moe,
    "all": lambda model, rule, layers: [rule.get("all", FULL)] * len(layers),
}
