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
from tests.plans.conftest import read
from tests.plans.entries import family_table

MEGABYTE = 1_000_000
SCHEMA = importlib.resources.files("jaxpe.conformance").joinpath("golden.schema.json")
QWEN = {
    "model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "num_hidden_layers": 2,
}  # fmt: skip


@pytest.fixture
def write(tmp_path):
    """The golden vectors of fields, in `tmp_path`."""

    def call(fields, **options):
        (tmp_path / "config.json").write_text(json.dumps(fields))
        return write_golden(tmp_path, tmp_path, **options)

    return call


def rotated_by(encoding, x, positions):
    """Rows `[n, head_dim]` of one vector, by an encoding in float64."""
    with jax.enable_x64(True):
        heads = np.broadcast_to(x, (len(positions), 1, len(x)))
        return np.asarray(encoding.query((), heads, positions))[:, 0]


@pytest.mark.parametrize(
    ("pairing", "layout"), [("half", "half_split"), ("interleaved", "interleaved")]
)
def test_is_what_the_encoding_rotates(pairing, layout):
    plan = simple_plan(head_dim=64, base=500_000.0, pairing=pairing, context=4096)
    (group,) = golden_vectors([plan])["groups"]
    assert group["positions"].tolist() == [0, 1, 2, 4095, 4096, 2**15, 2**20]
    encoding = rope(head_dim=64, base=500_000.0, layout=layout)
    for name in ("q", "k"):
        wanted = rotated_by(encoding, group[name], group["positions"])
        np.testing.assert_allclose(group["float64"][name], wanted, atol=4e-6)
    logits = group["float64"]["q"] @ group["float64"]["k"].T / 8
    np.testing.assert_allclose(group["float64"]["logits"], logits, atol=1e-12)


def test_sections_are_those_of_the_encoding(write):
    (group,) = write(QWEN)["groups"]
    encoding = mrope(head_dim=128, sections=(16, 24, 24), base=group["base"])
    wanted = rotated_by(encoding, group["q"], group["positions"])
    np.testing.assert_allclose(group["float64"]["q"], wanted, atol=4e-6)


def test_json_and_npz_are_equal(write, tmp_path):
    golden = write({"model_type": "gemma4_text", "num_hidden_layers": 6})
    stored = json.loads((tmp_path / "golden.json").read_text())
    arrays = np.load(tmp_path / "golden.npz")
    assert arrays["version"] == stored["version"] == golden["version"]
    assert len(arrays) == 1 + 17 * len(golden["groups"])
    for key in set(arrays) - {"version"}:
        index, *names = key.split(".")
        numbers = stored["groups"][int(index)]
        for name in names:
            numbers = numbers[name]
        same = np.asarray(numbers).astype(arrays[key].dtype)
        np.testing.assert_array_equal(same, arrays[key])
        assert same.dtype == (np.float32 if names[0] == "float32" else same.dtype)


def test_bytes_are_the_same_each_time(write, tmp_path, monkeypatch):
    files = [tmp_path / "golden.json", tmp_path / "golden.npz"]
    write(QWEN)
    before = [path.read_bytes() for path in files]
    monkeypatch.setattr(time, "time", lambda: 1e9)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(1e9))
    write(QWEN)
    assert [path.read_bytes() for path in files] == before


def test_scaling_that_depends_on_the_text_is_written_for_both_sides(write):
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    short, long = write({"model_type": "llama", "rope_scaling": scaling})["groups"]
    assert (short["text"], long["text"]) == ("short", "long")
    assert short["positions"].tolist() == [0, 1, 2, 2047]
    assert long["positions"].tolist() == [0, 1, 2, 2047, 2048, 2**15, 2**20]
    assert short["frequencies"][-1] > 10 * long["frequencies"][-1]


def test_layers_without_rotation_and_learned_frequencies_say_so(write):
    groups = write({"model_type": "qwen3_next", "num_hidden_layers": 4})["groups"]
    assert [group.get("reason") for group in groups] == [
        "the layers have no attention logits",
        None,
    ]
    (learned,) = write({"model_type": "lightglue"})["groups"]
    assert "the checkpoint learns them" in learned["reason"]
    (bias,) = write({"model_type": "bloom", "hidden_size": 64, "n_head": 8})["groups"]
    assert bias["reason"] == "positions are a bias of the logits"


def test_query_scaling_is_on_the_logits(write):
    group = write({"model_type": "ministral3"})["groups"][0]
    scaling = group["query_scaling"]
    plain = group["scale"] * group["float64"]["q"] @ group["float64"]["k"].T
    ratio = group["float64"]["logits"] / plain
    factor = 1 + scaling["beta"] * np.log1p(group["positions"] // scaling["period"])
    np.testing.assert_allclose(ratio, np.repeat(factor[:, None], len(factor), 1), rtol=1e-6)


def test_refuses_a_type_without_rules(write, command, tmp_path):
    with pytest.raises(NotJudgedError, match="'nobody' is not known"):
        write({"model_type": "nobody"})
    code, out, err = command("golden", tmp_path, "--out", tmp_path / "vectors")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert not (tmp_path / "vectors").exists()


def test_command(command, tmp_path):
    config = {"model_type": "gemma4_text", "num_hidden_layers": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, out, _ = command("golden", tmp_path, "--out", tmp_path / "vectors")
    assert code == 0
    assert "full_attention: 9 positions" in out
    assert {path.name for path in (tmp_path / "vectors").iterdir()} == {"golden.json", "golden.npz"}


def configurations():
    """Every judged type by its defaults, published models, and scaled classes."""
    table = family_table()
    without = [name for names in table["without"].values() for name in names]
    for name in [*table["rotary"], *table["axial"], *without]:
        if "." not in name:
            yield {"_class_name" if name[0].isupper() else "model_type": name}
    yield from (one["config"] for one in read("published").values() if "config" in one)
    for index, entry in enumerate(classes()["types"].values()):
        for variation in ("scaled_longrope", "scaled_dynamic") if index % 3 == 0 else ():
            case = entry["cases"].get(variation, {})
            if case.get("groups"):
                yield case["input"]
    yield classes()["types"]["t5gemma"]["cases"]["scaled_longrope"]["input"]


def shortened(value):
    """Stored vectors with two numbers of each."""
    if isinstance(value, dict):
        return {name: shortened(one) for name, one in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], dict):
        return [shortened(one) for one in value[:2]]
    return [shortened(one) for one in value] if isinstance(value, list) else value


def test_every_judged_model_has_small_files_of_the_schema(write, tmp_path):
    validator = pytest.importorskip("jsonschema").Draft202012Validator(
        json.loads(SCHEMA.read_text())
    )
    written, refused = 0, []
    for index, fields in enumerate(configurations()):
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
        stored = json.loads((tmp_path / "golden.json").read_text()) if index % 10 == 0 else None
        if stored is not None:  # numbers are the slowest part
            validator.validate(stored if index % 100 == 0 else shortened(stored))
    assert written > 690
    assert all("has no head_dim" in one for one in refused), refused
    assert len(refused) < 20


def test_inputs_are_those_of_the_format():
    """q is ((7 i + 3) mod 17 - 8)/8 and k ((5 i + 11) mod 19 - 9)/8, as programs may hold them."""
    group = golden_vectors(simple_plan(head_dim=4, base=100.0), context=5)["groups"][0]
    assert group["q"].tolist() == [-0.625, 0.25, -1.0, -0.125]
    assert group["k"].tolist() == [0.25, 0.875, -0.875, -0.25]
    assert group["positions"].tolist()[:6] == [0, 1, 2, 4, 5, 2047]
    assert group["float32_error"].shape == group["positions"].shape
    # A float32 phase of 2^20 · 0.1 has an error of up to 2^-24 · 104858 from the frequency alone.
    assert 0 == group["float32_error"][0] < group["float32_error"][-1] < 2 * 104_858 * 2.0**-23
