"""Frequencies of rotary embeddings, plain and scaled; NumPy alone.

Each scaling is a NamedTuple whose fields are the keys of a Hugging Face `rope_parameters` entry.
Its method `frequencies` returns ω_k and the factor on cos and sin. This is the attention factor:
attention logits carry its square. L0 is `original_max_position_embeddings`, s is `factor`. Fields
that hold floats may be traced by JAX, except `fraction`.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# An integer or float, or a JAX scalar where traced; `Any`, since this module does not import JAX.
Length = Any
Scalar = Any
Frequencies = Any  # float64 NumPy, or a JAX array if they depend on a traced number


def inverse_frequencies(dim: int, *, base: Scalar = 10_000.0) -> Frequencies:
    """Frequencies of RoPE: ω_k = base^(−2k/dim), k = 0..dim/2 − 1, Eq. (2).

    Float64 NumPy of shape `[dim / 2]`; a traced base gives a traced array.

    Args:
        dim: number of rotated entries, even.
        base: θ of the frequencies, positive.

    >>> inverse_frequencies(4).tolist()
    [1.0, 0.01]
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"dim must be even and at least 2, not {dim}: frequencies come in pairs")
    if not (is_traced(base > 0) or base > 0):
        raise ValueError(f"base must be positive, not {base}")
    return base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


class RopeFrequencies(NamedTuple):
    """Frequencies ω_k in radians per position, and the factor on cos and sin.

    Attributes:
        inverse: ω_k, `[rotary_dim / 2]`: float64 NumPy, or a JAX array for a traced number.
        attention_factor: factor on cos and sin.
    """

    inverse: Frequencies
    attention_factor: float = 1.0


class LinearScaling(NamedTuple):
    """Linear scaling: all frequencies divided by s (Chen et al. 2023).

    Position interpolation: ω_k/s at position i is ω_k at i/s.

    Attributes:
        factor: s, the divisor of all frequencies.
    """

    factor: float

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences; not used.
        """
        return RopeFrequencies(inverse_frequencies(dim, base=base) / self.factor)


class NtkScaling(NamedTuple):
    """NTK-aware scaling: a larger base, which keeps the fastest frequency (bloc97 2023).

    The base becomes base·s^(d/(d−2)), so that the slowest frequency becomes ω/s.

    Attributes:
        factor: s, the divisor of the slowest frequency.
    """

    factor: float

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences; not used.
        """
        return RopeFrequencies(_ntk(dim, base, self.factor))


class DynamicScaling(NamedTuple):
    """Dynamic NTK scaling: a base that grows with the sequence (emozilla 2023).

    For L positions the factor of `NtkScaling` is s·L/L0 − (s − 1) if L > L0, else 1. So s = 1
    scales, too: beyond L0 it is NTK-aware scaling by L/L0.
    Frequencies change as a text grows, but cached keys stay rotated by earlier ones. When
    generating, pass `rope` the `length` that the text will reach.

    Attributes:
        factor: s of the formula.
        original_max_position_embeddings: L0, positions of the original context.
    """

    factor: float
    original_max_position_embeddings: int

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries for sequences of one length.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences, required.
        """
        ratio = _required_length(length, self) / self.original_max_position_embeddings
        ratio = namespace(ratio).maximum(ratio, 1.0)
        return RopeFrequencies(_ntk(dim, base, self.factor * ratio - self.factor + 1))


class NtkByPartsScaling(NamedTuple):
    """NTK-by-parts scaling: slow frequencies divided by s, fast ones kept (bloc97 2023).

    Frequencies with at least `beta_fast` turns in the original context stay. Frequencies with at
    most `beta_slow` turns are divided by s. A ramp connects the two: Eq. (13)-(16) of YaRN, Peng
    et al. (2023).

    Attributes:
        factor: s, how many times the original context is read.
        original_max_position_embeddings: L0, positions of the original context.
        beta_fast: turns in the original context from which frequencies stay.
        beta_slow: turns up to which frequencies are divided by s.
        truncate: whether the ends of the ramp are rounded to whole pairs.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences; not used.
        """
        inverse = inverse_frequencies(dim, base=base)
        scaled = _ramp(dim, base, self)
        return RopeFrequencies(inverse / self.factor * scaled + inverse * (1 - scaled))


class YarnScaling(NamedTuple):
    """YaRN: NTK-by-parts scaling with a temperature of attention (Peng et al. 2023).

    cos and sin are multiplied by 0.1·ln s + 1.
    `mscale` and `mscale_all_dim`, given together, make the factor a ratio (DeepSeek-V2).

    Attributes:
        factor: s, how many times the original context is read.
        original_max_position_embeddings: L0, positions of the original context.
        attention_factor: factor on cos and sin; computed when None.
        beta_fast: turns in the original context from which frequencies stay.
        beta_slow: turns up to which frequencies are divided by s.
        mscale: multiplier of 0.1·ln s in the numerator of the factor.
        mscale_all_dim: multiplier of 0.1·ln s in the denominator of the factor.
        truncate: whether the ends of the ramp are rounded to whole pairs.
    """

    factor: float
    original_max_position_embeddings: int
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries, and the attention factor.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences; not used.
        """
        parts = NtkByPartsScaling(*(getattr(self, name) for name in NtkByPartsScaling._fields))
        log = 0.1 * _log(namespace(self.factor).maximum(self.factor, 1.0))
        factor = log + 1.0
        if all(is_traced(scale) or scale for scale in (self.mscale, self.mscale_all_dim)):
            factor = (log * self.mscale + 1.0) / (log * self.mscale_all_dim + 1.0)
        if self.attention_factor is not None:
            factor = _plain(self.attention_factor)
        return parts.frequencies(dim, base, length)._replace(attention_factor=factor)


class Llama3Scaling(NamedTuple):
    """Llama 3 scaling: long wavelengths multiplied by s, short ones kept (Meta 2024).

    Frequencies are ω/s at wavelengths above L0/low and ω below L0/high, with a ramp between.
    If high is not above low, as in Llama 4 Scout, the ramp is a step at low.

    Attributes:
        factor: s, the divisor of slow frequencies.
        low_freq_factor: turns in the original context up to which ω is divided by s.
        high_freq_factor: turns from which ω stays.
        original_max_position_embeddings: L0, positions of the original context.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences; not used.
        """
        inverse = inverse_frequencies(dim, base=base)
        turns = self.original_max_position_embeddings * inverse / (2 * np.pi)
        width = self.high_freq_factor - self.low_freq_factor
        above = turns - self.low_freq_factor
        ramp = is_traced(width) or width > 0
        fast = (above / width).clip(0.0, 1.0) if ramp else (above >= 0).astype(float)
        return RopeFrequencies((1 - fast) * inverse / self.factor + fast * inverse)


class LongRopeScaling(NamedTuple):
    """LongRoPE: a separate divisor for each frequency (Ding et al. 2024).

    One list of divisors applies to texts of up to L0 positions, another to longer texts.
    cos and sin are multiplied by √(1 + ln s / ln L0). As with dynamic scaling, pass `rope` a
    `length` when generating.

    Attributes:
        short_factor: divisors up to L0, one for each frequency.
        long_factor: divisors beyond L0, one for each frequency.
        original_max_position_embeddings: L0, positions of the original context.
        factor: s of the attention factor.
        attention_factor: factor on cos and sin; computed when None.
    """

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the rotated entries for sequences of one length.

        Args:
            dim: number of rotated entries, even.
            base: θ of the frequencies.
            length: length of the sequences, required.
        """
        for name in ("short_factor", "long_factor"):
            if len(getattr(self, name)) != dim // 2:
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} entries for {dim} rotated dimensions: "
                    f"pass {dim // 2}, one per frequency"
                )
        inverse = inverse_frequencies(dim, base=base)
        factors = (self.short_factor, self.long_factor)
        short, long = (inverse / namespace(factor).asarray(factor) for factor in factors)
        beyond = _required_length(length, self) > self.original_max_position_embeddings
        chosen = namespace(beyond, short, long).where(beyond, long, short)
        log = _log(namespace(self.factor).maximum(self.factor, 1.0))
        square = 1.0 + log / math.log(self.original_max_position_embeddings)
        computed = namespace(square).sqrt(square)
        factor = computed if self.attention_factor is None else self.attention_factor
        return RopeFrequencies(chosen, _plain(factor))


class ProportionalScaling(NamedTuple):
    """Proportional scaling (p-RoPE): slow frequencies set to zero (Barbero et al. 2024).

    The fastest `fraction` of the frequencies is divided by s. Unlike in plain partial rotation, the
    frequencies are spaced as for the whole head.

    Attributes:
        factor: s, the divisor of the nonzero frequencies.
        fraction: share of nonzero frequencies, the fastest ones.
    """

    factor: float = 1.0
    fraction: float = 1.0

    def frequencies(self, dim: int, base: Scalar, length: Length) -> RopeFrequencies:
        """Frequencies of the entries, zero beyond the fraction.

        Args:
            dim: number of entries, even, with those that do not rotate.
            base: θ of the frequencies.
            length: length of the sequences; not used.
        """
        inverse = inverse_frequencies(dim, base=base) / self.factor
        turning = int(self.fraction * dim // 2)
        kept = np.arange(dim // 2) < turning
        return RopeFrequencies(namespace(inverse).where(kept, inverse, 0.0))


RopeScaling = (
    LinearScaling | NtkScaling | DynamicScaling | NtkByPartsScaling | YarnScaling | Llama3Scaling
    | LongRopeScaling | ProportionalScaling
)  # fmt: skip

ROPE_TYPES: dict[str, type] = {
    "linear": LinearScaling,
    "ntk": NtkScaling,
    "dynamic": DynamicScaling,
    "ntk_by_parts": NtkByPartsScaling,
    "yarn": YarnScaling,
    "llama3": Llama3Scaling,
    "longrope": LongRopeScaling,
    "proportional": ProportionalScaling,
}

# Keys of a rope_parameters entry that are not fields of its scaling.
_OTHER_KEYS = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section",
    "mrope_interleaved",
}  # fmt: skip

# Types of the values of an entry, for all scalings; numbers may be written as floats.
PARAMETER_KINDS: dict[str, Any] = {
    **{
        field: {bool: bool, tuple[float, ...]: list[float]}.get(kind, float)
        for scaling in ROPE_TYPES.values() for field, kind in scaling.__annotations__.items()
        if field != "fraction"
    },
    "rope_theta": float, "partial_rotary_factor": float, "rope_type": str, "type": str,
}  # fmt: skip


def scaling_from_hf(
    parameters: Mapping[str, Any], *, max_position_embeddings: int | None = None
) -> RopeScaling | None:
    """Scaling of a Hugging Face `rope_parameters` entry, or of an older `rope_scaling` entry.

    Missing values follow Hugging Face. L0 of "dynamic" is always `max_position_embeddings`. A
    missing factor of "yarn" or "longrope" is `max_position_embeddings` / L0. None for "default".

    Raises:
        ValueError: an unknown type or parameter, or a missing one.

    >>> scaling_from_hf({"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0})
    LinearScaling(factor=4.0)
    """
    if not isinstance(parameters, Mapping):
        raise ValueError(
            f"rope_parameters is {parameters!r}: pass a dict; for a configuration without scaling, "
            '{"rope_theta": config.rope_theta}'
        )
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    kind = "longrope" if kind == "su" else kind  # its name in the first Phi-3 configurations
    nested = [key for key, value in parameters.items() if isinstance(value, Mapping)]
    if nested:
        raise ValueError(
            f"rope_parameters has one entry for each kind of layer ({', '.join(nested)}): pass "
            f"one of them, such as rope_parameters[{nested[0]!r}]"
        )
    if kind not in ROPE_TYPES and kind not in ("default", "mrope"):
        raise ValueError(
            f"unknown rope_type {kind!r}: known are default, {', '.join(sorted(ROPE_TYPES))}"
        )
    cls = ROPE_TYPES.get(kind)
    fields = () if cls is None else cls._fields
    stated = {key: value for key, value in parameters.items() if key not in _OTHER_KEYS}
    numbers = {key: value for key, value in stated.items() if value is not None or not fields}
    if max_position_embeddings and kind == "dynamic":  # whatever the entry itself says
        numbers["original_max_position_embeddings"] = max_position_embeddings
    original = numbers.get("original_max_position_embeddings")
    if max_position_embeddings and kind in ("yarn", "longrope") and original:
        numbers.setdefault("factor", max_position_embeddings / original)
    if kind == "proportional":
        numbers["fraction"] = partial_rotary_factor(parameters)
    if unknown := sorted(set(numbers) - set(fields)):
        raise ValueError(
            f"rope_type {kind!r} does not know {', '.join(unknown)}; it takes "
            f"{', '.join(fields) or 'no parameters'}"
        )
    if cls is None:
        return None
    missing = [key for key in fields if key not in numbers and key not in cls._field_defaults]
    if missing:
        raise ValueError(
            f"rope_type {kind!r} needs {', '.join(missing)} in addition to {sorted(numbers)}: if "
            "the configuration has it outside the entry, add it to the entry"
        )
    for name in {"short_factor", "long_factor"} & set(numbers):
        numbers[name] = tuple(numbers[name])
    return cls(**numbers)


def partial_rotary_factor(parameters: Mapping[str, Any]) -> float:
    """Rotated share of a head; 1 if the entry has none, or null."""
    share = parameters.get("partial_rotary_factor")
    return 1.0 if share is None else float(share)


def _ntk(dim: int, base: Scalar, factor: Any) -> Frequencies:
    """Frequencies for the base base·factor^(d/(d−2)), as ω_k·factor^(−2k/(d−2)).

    The second form loses no digits in float32, for a traced factor. With d = 2 the only frequency
    is 1, for every base.
    """
    library = namespace(base, factor)
    factor = np.float64(factor) if library is np else library.asarray(factor, (base * factor).dtype)
    exponents = library.asarray(-np.arange(0, dim, 2) / max(dim - 2, 1), factor.dtype)
    return library.asarray(inverse_frequencies(dim, base=base), factor.dtype) * factor**exponents


def _ramp(dim: int, base: Scalar, scaling: NtkByPartsScaling) -> Frequencies:
    """1 where a frequency is scaled, 0 where it stays."""

    def turning(rotations: Scalar) -> Scalar:
        """Fractional index k of the frequency with this number of turns in the original context."""
        original = scaling.original_max_position_embeddings
        return dim * _log(original / (rotations * 2 * math.pi)) / (2 * _log(base))

    low, high = turning(scaling.beta_fast), turning(scaling.beta_slow)
    library = namespace(low, high)
    if scaling.truncate:
        low, high = library.floor(low), library.ceil(high)
    low, high = library.maximum(low, 0), library.minimum(high, dim - 1)
    # Hugging Face's width for an empty ramp, which makes it a step.
    width = library.where(high != low, high - low, 0.001)
    return ((np.arange(dim // 2, dtype=float) - low) / width).clip(0.0, 1.0)


def _required_length(length: Length, scaling: RopeScaling) -> Length:
    if length is None:
        name = type(scaling).__name__
        raise ValueError(f"{name} depends on the length of the sequence: pass `length`")
    return int(length) if namespace(length) is np else length


def namespace(*values: Any) -> Any:
    """Module of the functions of values: jax.numpy if any is an array of JAX, else NumPy."""
    modules = (x.__array_namespace__() for x in values if hasattr(x, "__array_namespace__"))
    return next((module for module in modules if module is not np), np)


def is_traced(value: Any) -> bool:
    """Whether a value is traced by JAX, without an import of JAX."""
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].core.Tracer)


def _plain(value: Scalar) -> Scalar:
    """A number as a float, unless traced."""
    return value if is_traced(value) else float(value)


def _log(value: Scalar) -> Scalar:
    return namespace(value).log(value) if is_traced(value) else math.log(value)
