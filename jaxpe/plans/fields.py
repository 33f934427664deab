"""Fields of a configuration, with the defaults of its class and a record of fields in use."""

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from jaxpe._core.errors import InputError
from jaxpe.plans.families import Family, field_names

# Kinds of layers, as transformers 5 names them.
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
CHUNKED, INDEXED = "chunked_attention", "indexed_attention"
ORIGINAL = "original_max_position_embeddings"  # L0
MOST_LAYERS = 100_000
_POSITIONAL, _SWITCH, _OTHERWISE = (
    re.compile("|".join(field_names(name))) for name in ("positional", "switch", "otherwise")
)


class Fields:
    """Fields of a file under the names of its class, with a record of the fields that rules read.

    Attributes:
        stated: fields as the file has them.
        family: rules of the model type.
        source: name of the file, for error messages.
        used: names of the fields that a rule has read.
    """

    def __init__(self, stated: Mapping[str, Any], family: Family, *, source: str):
        # DBRX and MPT nest fields in attn_config; a value that is the class's default says nothing.
        inner = stated.get("attn_config")
        inner = inner.items() if isinstance(inner, Mapping) else ()
        named = {f"attn_config.{key}": value for key, value in inner}
        named = {k: v for k, v in named.items() if v != family.defaults.get(k)}
        self.stated, self.family, self.source = {**stated, **named}, family, source
        self.used = set[str]()

    def get(self, name: str) -> Any:
        """Field of the file, null included, or the default of the class."""
        renamed = self.family.renamed.get(name)
        names = (table.get(name, name) for table in (self.family.prior, {}, self.family.names))
        for key in (renamed,) if renamed else names:
            if key in self.stated and name not in self.family.forced:
                self.used |= {key, name}
                return self.stated[key]
        return self.family.defaults.get(name)

    def integer(self, name: str, *, least: int = 1, most: int = 2**31 - 1) -> int | None:
        """A field that is a whole number, or None.

        Raises:
            InputError: something else, or a number out of range.
        """
        why = f"; a whole number of {least:,} to {most:,} is needed"
        return self._value(name, lambda one: type(one) is int and least <= one <= most, why)

    def number(self, name: str, default: Any = None) -> Any:
        """A field that is a finite number, as a float; a default where it is null or absent.

        Raises:
            InputError: something else.
        """
        finite = self._value(name, is_finite, ", not a finite number")
        return default if finite is None else float(finite)

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that is an object; empty where it is null or absent.

        Raises:
            InputError: something else.
        """
        why = ", not an object of its entries"
        return dict(self._value(name, lambda one: isinstance(one, Mapping), why) or {})

    def sequence(self, name: str) -> list[Any] | None:
        """A field that is a list, or None.

        Raises:
            InputError: something else.
        """
        why = ", not a list"
        return self._value(name, lambda v: isinstance(v, list) and len(v) <= MOST_LAYERS, why)

    def _value(self, name: str, fits: Callable[[Any], bool], why: str) -> Any:
        value = self.get(name)
        if value is not None and not fits(value):
            raise self.error(name, why)
        return value

    def error(self, name: str, why: str) -> InputError:
        """Error about a field, with its value."""
        return InputError(f"{self.source}: {name} is {reprlib.repr(self.get(name))}{why}")

    def layer_fields(self, index: int) -> "Fields":
        """Fields of one layer, with its part of `per_layer_config`."""
        every = self.mapping("per_layer_config")
        layer = next((every[key] for key in (f"{index:02d}", str(index)) if key in every), None)
        if not isinstance(layer, Mapping):
            return self
        return self.replaced({**self.stated, **layer})

    def replaced(self, stated: Mapping[str, Any]) -> "Fields":
        """Other fields of the same file, with the same record of fields in use."""
        fields = Fields(stated, self.family, source=self.source)
        fields.used = self.used
        return fields

    def unread(self) -> tuple[str, ...]:
        """Positional fields that no rule used."""
        unused = {key: value for key, value in self.stated.items() if key not in self.used}
        return positional_names(unused)


def positional_names(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of fields that concern positions and are not empty or switched off."""
    switched = (key for key, value in fields.items() if value is False and _SWITCH.search(key))
    stated = (key for key, value in fields.items() if value not in (None, False, [], {}))
    return tuple(filter(is_positional, (*stated, *switched)))


def is_positional(name: str) -> bool:
    """Whether the name of a field is of positions.

    >>> is_positional("swa_rope_theta"), is_positional("lora_alpha"), is_positional("alpha")
    (True, False, True)
    """
    return bool(_POSITIONAL.search(name)) and not _OTHERWISE.search(name)


def is_finite(value: Any) -> TypeGuard[float]:
    """Whether a value of a file is a finite number.

    >>> is_finite(2), is_finite(True), is_finite("2"), is_finite(math.inf)
    (True, False, False, False)
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def checked_list(
    fields: Fields, name: str, stated: list[Any], count: int | None, types: Any, meant: str
) -> list[Any]:
    """List with a value of the right type for each layer; longer lists are cut.

    Raises:
        InputError: a value of another type, or fewer values than layers.
    """
    for one in stated:
        if not isinstance(one, types):
            raise InputError(f"{fields.source}: {name} has {one!r}, not {meant}")
    if count is not None and len(stated) < count:
        raise InputError(f"{fields.source}: {name} has {len(stated)} entries for {count} layers")
    return stated[:count]
