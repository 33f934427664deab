"""Job of `jaxpe rope`: what each layer does with positions, and where programs disagree."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxpe._core.errors import InputError
from jaxpe.plans.advice import recipes
from jaxpe.plans.axial import axial_plans
from jaxpe.plans.checks import Case, findings
from jaxpe.plans.comparison import disagreements
from jaxpe.plans.configuration import (
    Configuration,
    Model,
    UnknownSizeError,
    read_configuration,
    unread_fields,
)
from jaxpe.plans.evaluation import (
    ModelGroup,
    layer_plan,
    phase_errors,
    program_result,
)
from jaxpe.plans.layers import LayerGroup, layer_groups
from jaxpe.plans.options import RopeOptions
from jaxpe.plans.programs.keys import unjudged_keys
from jaxpe.plans.programs.table import choose_programs
from jaxpe.plans.result import LayerPlan, ProgramResult, RopeAnalysis

_ROTARY = re.compile("rope|rotary|theta")  # in names of keys


class RopeConfig(NamedTuple):
    """Configuration as read, with options that replace its fields.

    Attributes:
        configuration: fields of the file.
        options: options of the read.
    """

    configuration: Configuration
    options: RopeOptions

    def plan(self, program: str | None = None, *, length: int | None = None):
        """Groups of layers, with the numbers of a program.

        Args:
            program: name of a program, with a version if it has several; default: the newest
                transformers, or llama.cpp for a .gguf.
            length: longest text; default: the configuration's length.

        Raises:
            InputError: an unknown program, or a program that refuses the configuration.

        >>> plan = read_config(head_dim=64, context=2048).plan("transformers")
        >>> plan[0].kind, plan[0].turning, plan[0].pairing
        ('rotary', 64, 'half')
        """
        rules = choose_programs(program, self.configuration.form)[0]
        length = length or self.options.length or longest_context(self.configuration)
        groups = _model_groups(self.configuration)
        result = program_result(rules, self.configuration, groups, length)
        if result.problem is not None:
            raise InputError(f"{rules.name} refuses {self.configuration.source}: {result.problem}")
        return _plans(self.configuration.models, groups, result, length)


def read_config(
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None, **options
) -> RopeConfig:
    """Read a config.json, a folder with one, or a .gguf file.

    Args:
        config: path of the file, or its fields; optional with `head_dim`.
        **options: other fields of `RopeOptions`, which replace the file's.

    Raises:
        InputError: a file that cannot be read, or invalid fields.

    >>> read_config(head_dim=64, base=1e6, context=2048).plan()[0].base
    1000000.0
    >>> read_config({"model_type": "cohere", "num_hidden_layers": 2}).plan()[0].base
    500000.0
    """
    stated = config if isinstance(config, Mapping) else None
    path = None if config is None or stated is not None else str(config)
    chosen = RopeOptions(config=path, **options)
    return RopeConfig(read_configuration(chosen, stated), chosen)


def simple_plan(
    *, head_dim: int = 64, base: float = 1e4, pairing: str = "half", context: int = 2048, **fields
) -> LayerPlan:
    """Plan of layers that rotate all entries of a head.

    Args:
        head_dim: width of the head.
        base: θ of the frequencies.
        pairing: "half" for entry i with i + head_dim/2, "interleaved" for 2i with 2i + 1.
        context: number of training positions.
        **fields: other fields of `LayerPlan`, such as `window=512`.

    Raises:
        InputError: a number out of range, or another pairing.

    >>> simple_plan(head_dim=4, base=100.0, pairing="interleaved").frequencies.tolist()
    [1.0, 0.1]
    """
    if pairing not in ("half", "interleaved"):
        raise InputError(f'pairing is {pairing!r}; pass "half" or "interleaved"')
    plan = read_config(head_dim=head_dim, base=base, context=context).plan()[0]
    return plan._replace(pairing=pairing, **fields)


def explain_rope(options: RopeOptions) -> RopeAnalysis:
    """Plan of layers, numbers of each program, and findings.

    No weights are loaded, and no code is compiled. Frequencies are in float64.

    Args:
        options: file, and values that replace its fields.

    Raises:
        InputError: a file that cannot be read, or sizes that are missing.

    >>> found = explain_rope(RopeOptions(head_dim=64, base=1e4, context=2048))
    >>> found.status, found.groups[0].never_round, found.groups[0].layers
    ('judged', 11, None)
    """
    configuration, analysis = read_plans(options)
    if analysis.widest is not None:
        length = analysis.length
        lengths = [2**k for k in range(8, length.bit_length()) if 2**k < length] + [length]
        errors = (phase_errors(np.asarray(analysis.widest.frequencies), one) for one in lengths)
        analysis = analysis._replace(precision=tuple(itertools.chain.from_iterable(errors)))
    analysis = analysis._replace(recipes=recipes(Case(configuration, analysis)))
    return analysis._replace(findings=findings(Case(configuration, analysis)))


def read_plans(options: RopeOptions) -> tuple[Configuration, RopeAnalysis]:
    """Configuration and its analysis without precision, findings and recipes.

    >>> read_plans(RopeOptions(head_dim=64, context=2048))[1].groups[0].turning
    64
    """
    configuration = read_configuration(options)
    length = options.length or longest_context(configuration)
    model_groups = _model_groups(configuration)
    newest, *_ = choose_programs(None, configuration.form)  # the reference for all others
    chosen = dict.fromkeys([newest, *choose_programs(options.programs, configuration.form)])
    programs = tuple(program_result(one, configuration, model_groups, length) for one in chosen)
    accepting = [one for one in programs if one.problem is None]
    asked = options.scaling is not None or configuration.form == "options"
    if asked and not accepting:
        raise InputError(f"no program reads these options: {programs[0].problem}")
    most = accepting and (accepting[0] is programs[0] or 2 * len(accepting) >= len(programs))
    first = accepting[0] if most else None
    groups = _plans(configuration.models, model_groups, first, length)
    reason = _why_not_judged(configuration, bool(groups))
    unscaled = all(one.rope_type in ("", "default") for it in programs for one in it.numbers)
    analysis = RopeAnalysis(
        source=configuration.source,
        form=configuration.form,
        status="not judged" if reason else "judged",
        reason=reason,
        model_type=configuration.model_type,
        context=longest_context(configuration),
        length=length,
        groups=groups,
        towers=_tower_plans(configuration, length),
        programs=programs,
        disagreements=disagreements(programs),
        unread=(*unread_fields(configuration), *_unread_keys(configuration, unscaled)),
        numbers_of="" if first is None else first.name,
    )
    return configuration, analysis


def _unread_keys(configuration: Configuration, unscaled: bool) -> Iterator[str]:
    """Names of the keys of scaling entries whose effect is not judged."""
    for model in configuration.models if configuration.form != "gguf" else ():
        name = "rope_scaling" if model.fields.stated.get("rope_scaling") else "rope_parameters"
        yield from [name] * bool(unscaled and model.family.scaling == "ignored" and model.entry)
        yield from (f"{name}.{key}" for key in unjudged_keys(model) if model.has_rules)


def longest_context(configuration: Configuration) -> int:
    """`max_position_embeddings`; the larger for an encoder and a decoder.

    >>> longest_context(read_config(head_dim=64, context=2048).configuration)
    2048
    """
    return max(model.context for model in configuration.models)


def _model_groups(configuration: Configuration) -> list[ModelGroup]:
    models = [model for model in configuration.models if model.family.kind != "axial"]
    return [ModelGroup(model, group) for model in models for group in _groups(model)]


def _groups(model: Model) -> tuple[LayerGroup, ...]:
    """Groups of layers; empty for a type without rules if the file lacks rotary keys or sizes."""
    try:
        groups = layer_groups(model)
    except UnknownSizeError:
        if model.has_rules:
            raise
        return ()
    return groups if model.has_rules or any(map(_ROTARY.search, model.fields.stated)) else ()


def _tower_plans(configuration: Configuration, length: int) -> tuple[LayerPlan, ...]:
    """Layers of vision and audio models, as the newest program reads them."""
    towers = configuration._replace(models=configuration.towers)
    groups = _model_groups(towers)
    newest = choose_programs(None, configuration.form)[0]
    result = program_result(newest, towers, groups, length)
    return _plans(towers.models, groups, result, length)


def _plans(
    models: tuple[Model, ...], groups: list[ModelGroup], program: ProgramResult | None, length: int
) -> tuple[LayerPlan, ...]:
    numbers = (program.numbers if program is not None else ()) or [None] * len(groups)
    longest = max((one.model.context for one in groups), default=0)
    lengths = (min(length, one.model.context) if length <= longest else length for one in groups)
    rows = zip(groups, numbers, lengths, strict=True)
    plans = [layer_plan(one, computed, limit) for one, computed, limit in rows]
    return (*plans, *(plan for model in models for plan in axial_plans(model, length)))


def _why_not_judged(configuration: Configuration, shown: bool) -> str:
    """Reason for not judging the configuration: an unknown model type; else empty."""
    unknown = [model for model in configuration.models if not model.has_rules]
    if not unknown:
        return ""
    stated = unknown[0].fields.stated.get("model_type") or configuration.model_type
    name = f"the model type {stated!r} is not known" if stated else "the file has no model_type"
    numbers = ". The numbers shown are for plain RoPE, as in Llama" if shown else ""
    return f"{name}, so which layers rotate and how entries pair is unknown{numbers}"
