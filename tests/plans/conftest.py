"""What the tests of rotary configurations share."""

import json
import tomllib
from pathlib import Path

import gguf
import numpy as np
import pytest

import jaxpe.plans
from jaxpe.plans import RopeOptions, explain_rope

HERE = Path(__file__).parent
NEWEST, OLD, VLLM = "transformers 5.24", "transformers 4.57", "vLLM 0.33"
SGLANG, LLAMA_CPP = "SGLang 0.5.23", "llama.cpp"


def read(name):
    return json.loads((HERE / f"{name}.json").read_text())


def family_table():
    return tomllib.loads(Path(jaxpe.plans.__file__).with_name("families.toml").read_text("utf-8"))


def codes(found):
    return {one.code: one for one in found.findings}


def by_program(found, layers=None):
    """Numbers of the first group of layers, or of a named one, by program that reads the file."""
    names = [one.name for one in found.groups]
    index = 0 if layers is None else names.index(layers)
    return {one.name: one.numbers[index] for one in found.programs if one.problem is None}


@pytest.fixture
def explain(tmp_path):
    """The analysis of fields, with options beside them."""

    def call(fields, **options):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(fields))
        return explain_rope(RopeOptions(config=str(path), **options))

    return call


@pytest.fixture
def write_gguf(tmp_path):
    """The path of a .gguf with metadata of its architecture, and tensors by name."""

    def call(architecture, metadata, tensors=()):
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            add_value(writer, f"{architecture}.{key}", value)
        for name, values in dict(tensors).items():
            writer.add_tensor(name, np.asarray(values, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return str(path)

    return call


def add_value(writer, key, value):
    """Write a value with the type of GGUF that llama.cpp reads it with."""
    add = {
        bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
        str: writer.add_string, list: writer.add_array,
    }  # fmt: skip
    add[type(value)](key, value)
