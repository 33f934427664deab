"""Golden vectors of models: right, small, the same bytes each time, and for every judged type."""

import importlib.resources
import json
import time

import jax
import numpy as np
import pytest

from jaxpe._core.errors import InputError
from jaxpe.conformance import NotJudgedError, golden_vectors, write_golden
from jaxpe.encodings import mrope, rope
from jaxpe.plans import simple_plan
from tests.plans.agreement import classes
from tests.plans.conftest import family_table

MEGABYTE = 1_000_000
SCHEMA = importlib.resources.files("jaxpe.conformance").joinpath("golden.schema.json")
QWEN = {
    "model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "num_hidden_layers": 2,
}  # fmt: skip
DYNAMIC = {"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}


@pytest.fixture
def write(tmp_path):
    """The golden vectors of fields, in `tmp_path`."""

    def call(fields, **options):
        (tmp_path / "config.json").write_text(json.dumps(fields))
        return write_golden(tmp_path, tmp_path, **options)["groups"]

    return call


@pytest.mark.parametrize("pairing", ["half", "interleaved", "sections"])
def test_is_what_the_encoding_rotates(write, pairing):
    if pairing == "sections":
        (group,) = write(QWEN)
        encoding = mrope(head_dim=128, sections=(16, 24, 24), base=group["base"])
    else:
        plan = simple_plan(head_dim=64, base=500_000.0, pairing=pairing, context=4096)
        (group,) = golden_vectors([plan])["groups"]
        assert group["positions"].tolist() == [0, 1, 2, 4095, 4096, 2**15, 2**20]
        encoding = rope(head_dim=64, base=500_000.0, layout=pairing)
    for name in ("q", "k"):
        x, positions = group[name], group["positions"]
        with jax.enable_x64(True):
            heads = np.broadcast_to(x, (len(positions), 1, len(x)))
            wanted = np.asarray(encoding.query((), heads, positions))[:, 0]
        np.testing.assert_allclose(group["float64"][name], wanted, atol=4e-6)
    logits = group["float64"]["q"] @ group["float64"]["k"].T * group["scale"]
    np.testing.assert_allclose(group["float64"]["logits"], logits, atol=1e-12)


def test_inputs_are_those_of_the_format():
    """q is ((7 i + 3) mod 17 - 8)/8 and k ((5 i + 11) mod 19 - 9)/8, as programs may hold them."""
    group = golden_vectors(simple_plan(head_dim=4, base=100.0), context=5)["groups"][0]
    assert group["q"].tolist() == [-0.625, 0.25, -1.0, -0.125]
    assert group["k"].tolist() == [0.25, 0.875, -0.875, -0.25]
    assert group["positions"].tolist()[:6] == [0, 1, 2, 4, 5, 2047]
    assert (group["scale"], group["float32_error"].shape) == (0.5, group["positions"].shape)
    # A float32 phase of 2^20 · 0.1 has an error of up to 2^-24 · 104858 from the frequency alone.
    assert 0 == group["float32_error"][0] < group["float32_error"][-1] < 2 * 104_858 * 2.0**-23


def test_files_are_equal_and_have_the_same_bytes_each_time(write, tmp_path, monkeypatch):
    files = [tmp_path / "golden.json", tmp_path / "golden.npz"]
    groups = write({"model_type": "gemma4_text", "num_hidden_layers": 6})
    before = [path.read_bytes() for path in files]
    stored, arrays = json.loads(before[0]), np.load(files[1])
    assert arrays["version"] == stored["version"]
    assert len(arrays) == 1 + 17 * len(groups)
    for key in set(arrays) - {"version"}:
        index, *names = key.split(".")
        numbers = stored["groups"][int(index)]
        for name in names:
            numbers = numbers[name]
        np.testing.assert_array_equal(np.asarray(numbers).astype(arrays[key].dtype), arrays[key])
        assert names[0] != "float32" or arrays[key].dtype == np.float32
    monkeypatch.setattr(time, "time", lambda: 1e9)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(1e9))
    write({"model_type": "gemma4_text", "num_hidden_layers": 6})
    assert [path.read_bytes() for path in files] == before


def test_scaling_that_depends_on_the_text_is_written_for_both_sides(write):
    short, long = write(DYNAMIC)
    assert (short["text"], long["text"]) == ("short", "long")
    assert short["positions"].tolist() == [0, 1, 2, 2047]
    assert long["positions"].tolist() == [0, 1, 2, 2047, 2048, 2**15, 2**20]
    assert short["frequencies"][-1] > 10 * long["frequencies"][-1]


def test_layers_without_vectors_say_why(write):
    linear, full = write({"model_type": "qwen3_next", "num_hidden_layers": 4})
    assert ("logits" in linear["reason"], full.get("reason")) == (True, None)
    assert "learns" in write({"model_type": "lightglue"})[0]["reason"]
    assert "bias" in write({"model_type": "bloom", "hidden_size": 64, "n_head": 8})[0]["reason"]


def test_query_scaling_is_on_the_logits(write):
    group = write({"model_type": "ministral3"})[0]
    scaling = group["query_scaling"]
    plain = group["scale"] * group["float64"]["q"] @ group["float64"]["k"].T
    ratio = group["float64"]["logits"] / plain
    factor = 1 + scaling["beta"] * np.log1p(group["positions"] // scaling["period"])
    np.testing.assert_allclose(ratio, np.repeat(factor[:, None], len(factor), 1), rtol=1e-6)


def test_command(command, write, tmp_path):
    write({"model_type": "llama"})
    out = tmp_path / "vectors"
    assert command("golden", tmp_path, "--out", out)[0] == 0
    assert {path.name for path in out.iterdir()} == {"golden.json", "golden.npz"}
    with pytest.raises(NotJudgedError, match="nobody"):
        write({"model_type": "nobody"})
    code, printed, errors = command("golden", tmp_path, "--out", tmp_path / "none")
    assert (code, printed, errors.count("\n")) == (3, "", 1)
    assert not (tmp_path / "none").exists()


def configurations():
    """Defaults of some judged types, and scaled classes."""
    table = family_table()
    without = [name for names in table["without"].values() for name in names]
    names = [name for name in [*table["rotary"], *table["axial"], *without] if "." not in name]
    yield from ({"_class_name" if name[0].isupper() else "model_type": name} for name in names[::8])
    for entry in list(classes()["types"].values())[::12]:
        for variation in ("scaled_longrope", "scaled_dynamic"):
            case = entry["cases"].get(variation, {})
            if case.get("groups"):
                yield case["input"]
    yield classes()["types"]["t5gemma"]["cases"]["scaled_longrope"]["input"]


def shortened(value):
    """Stored vectors with two numbers of each."""
    if isinstance(value, dict):
        return {name: shortened(one) for name, one in value.items()}
    if isinstance(value, list):
        whole = value and isinstance(value[0], dict)
        return [shortened(one) for one in (value if whole else value[:2])]
    return value


def test_every_judged_model_has_small_files_of_the_schema(write, tmp_path):
    schema = json.loads(SCHEMA.read_text())
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema)
    written, refused = 0, []
    for fields in configurations():
        try:
            write(fields, programs="transformers")
        except NotJudgedError:
            continue
        except InputError as error:
            refused.append(str(error))
            continue
        written += 1
        for name in ("golden.json", "golden.npz"):
            assert (tmp_path / name).stat().st_size < MEGABYTE, fields
        validator.validate(shortened(json.loads((tmp_path / "golden.json").read_text())))
    assert written > 80
    assert all("head_dim" in one for one in refused), refused
