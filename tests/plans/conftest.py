"""What the tests of rotary configurations share."""

import json
from pathlib import Path

import pytest

from jaxpe.plans import RopeOptions, explain_rope

HERE = Path(__file__).parent


def read(name):
    return json.loads((HERE / f"{name}.json").read_text())


@pytest.fixture
def explain(tmp_path):
    """The analysis of fields, with options beside them."""

    def call(fields, **options):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(fields))
        return explain_rope(RopeOptions(config=str(path), **options))

    return call


@pytest.fixture
def gguf_file(tmp_path):
    """The analysis of a .gguf with metadata, and tensors by name."""
    import gguf

    def call(metadata, tensors=None, **options):
        path = tmp_path / "model.gguf"
        architecture = metadata.get("general.architecture", "llama")
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            if key != "general.architecture":
                add_value(writer, key, value)
        for name, values in (tensors or {}).items():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return explain_rope(RopeOptions(config=str(path), **options))

    return call


def add_value(writer, key, value):
    """Write a value with the type of GGUF that llama.cpp reads it with."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
