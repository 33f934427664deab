"""Random configurations and GGUF headers: a result, or one line that refuses them; no traceback."""

import copy
import json
import random

import gguf
import pytest

from jaxpe._core.errors import InputError
from jaxpe.cli import main
from jaxpe.plans.families import find_family
from jaxpe.plans.fields import is_positional
from tests.hardening.rope_mutations import CONFIGURATIONS
from tests.plans.conftest import add_value, read

FILES = {name: one["fields"] for name, one in CONFIGURATIONS.items()}
INPUTS = [one["input"] for one in read("threads").values() if "input" in one]
FILES |= {str(i): fields for i, fields in enumerate(INPUTS) if "gguf" not in fields}
METADATA = [fields["gguf"] for fields in INPUTS if "gguf" in fields]
SIZES = ("head_dim", "hidden_size", "num_attention_heads", "num_hidden_layers", "model_type")
NAMES = (
    "yarn",
    "linear",
    "dynamic",
    "llama3",
    "longrope",
    "default",
    "proportional",
    "mrope",
    "su",
)
JUDGED, NOT_JUDGED = 0, 3
SEEDS = range(3)


def any_value(rng, depth=0):
    """A value of JSON, more often one that a rule could take for its own."""
    simple = (
        None, True, False, 0, 1, -1, 2, 3, 64, 10**6, 2**31, 10**30, -(2**63), 0.0, 0.5, -0.25,
        1e-300, 1e308, float("nan"), float("inf"), "", "full_attention", "LLLG", "é\n\x00", *NAMES,
    )  # fmt: skip
    if depth < 3 and rng.random() < 0.35:
        values = [any_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 3, 33)))]
        if rng.random() < 0.5:
            return values
        names = ("rope_type", "type", "factor", "rope_theta", "full_attention", "sliding_attention",
                 "short_factor", "long_factor", "original_max_position_embeddings", "mrope_section",
                 "00", "partial_rotary_factor", "beta_fast", "main", "alpha", "x")  # fmt: skip
        return {rng.choice(names): value for value in values}
    return rng.choice(simple)


def spoilt(rng, fields):
    """Fields with random values in some of their positional keys, at any depth."""
    fields = copy.deepcopy(fields)
    sites = [fields, *(part for part in fields.values() if isinstance(part, dict))]
    sites += [part for site in sites[1:] for part in site.values() if isinstance(part, dict)]
    places = [
        (site, key)
        for site in sites
        for key in site
        if site is not fields or is_positional(key) or key in SIZES or isinstance(site[key], dict)
    ]
    family = find_family(str(fields.get("model_type")))
    if family is not None:  # keys that its rules read, though the file does not have them
        known = (*family.reads, *family.names.values(), *family.renamed.values(), *family.defaults)
        places += [(fields, key) for key in known]
    for site, key in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 4)))):
        site[key] = any_value(rng)
    return fields


def outcome(path, capsys, words=()):
    """Exit code of the command, or the refusal."""
    try:
        main._run(["rope", str(path), *words])
    except InputError as error:
        return str(error)
    except SystemExit as error:
        return error.code
    finally:
        capsys.readouterr()
    return JUDGED


def check(found):
    """Some are judged, some are refused, and each refusal is one line."""
    refusals = [one for one in found if isinstance(one, str)]
    codes = [one for one in found if not isinstance(one, str)]
    assert refusals
    assert not any("\n" in one.strip() for one in refusals)
    assert set(codes) | {NOT_JUDGED} == {JUDGED, NOT_JUDGED}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_values_in_positional_keys_make_no_traceback(tmp_path, capsys, seed):
    rng = random.Random(seed)
    path = tmp_path / "config.json"
    found = []
    for number in range(60):
        fields = spoilt(rng, rng.choice(list(FILES.values())))
        path.write_text(json.dumps(fields))
        words = (("--json",), (), ("--length", "128k"))[number % 3]
        try:
            found.append(outcome(path, capsys, words))
        except Exception as error:
            raise AssertionError(f"{json.dumps(fields)} {words}") from error
    check(found)


def any_metadata(rng, metadata):
    """Metadata with other values of the types that GGUF has."""
    simple = (0, 1, 2, 3, 64, 2**31 - 1, 0.0, -1.0, 1e30, float("nan"), True, "yarn", "none", "é",
              [0, 1, 2], [1.5], [True, False], ["a"])  # fmt: skip
    changed = dict(metadata)
    name = metadata["general.architecture"]
    extra = (
        "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.freq_base",
        "rope.scaling.original_context_length", "attention.sliding_window", "rope.scaling.alpha",
        "attention.sliding_window_pattern", "attention.head_count_kv", "attention.key_length",
        "rope.dimension_sections", "rope.freq_base_swa", "attention.recurrent_layers",
    )  # fmt: skip
    keys = [key for key in metadata if key != "general.architecture"]
    for key in rng.sample([*keys, *(f"{name}.{key}" for key in extra)], 2):
        changed[key] = rng.choice(simple)
    return changed


def write_header(path, metadata):
    """A .gguf without tensors."""
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if key != "general.architecture":
            add_value(writer, key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_and_truncated_headers_make_no_traceback(tmp_path, capsys, seed):
    rng = random.Random(seed)
    path = tmp_path / "model.gguf"
    found = []
    for number in range(40):
        write_header(path, any_metadata(rng, rng.choice(METADATA)))
        content = bytearray(path.read_bytes())
        if number % 3 == 1:
            content = content[: rng.randrange(4, len(content))]
        if number % 3 == 2:
            for _ in range(rng.choice((1, 4, 16))):
                content[rng.randrange(4, len(content))] = rng.randrange(256)
        path.write_bytes(content)
        try:
            found.append(outcome(path, capsys))
        except Exception as error:
            raise AssertionError(content.hex()) from error
    check(found)
