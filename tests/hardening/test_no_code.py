"""Files that name a module beside them: nothing imports it, where the current folder can be."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.numpy

from jaxpe._core.errors import InputError
from jaxpe.data import load_corpus
from jaxpe.training import Checkpoints
from tests.analysis.inspect.folders import with_tokenizer
from tests.data.test_sources import save_to_disk
from tests.data.tfds_builder import TEXTS, tfds_folder
from tests.nn.stored import PARITY, converted, tensors, write_gguf
from tests.training.test_folder import SAVED, run_folder

ROOT = Path(__file__).parents[2]
TFDS = "tensorflow_datasets.core.features"
DICT, SEQUENCE = f"{TFDS}.features_dict.FeaturesDict", f"{TFDS}.sequence_feature.Sequence"


class Attack(NamedTuple):
    """Files that name a module, what reads them in another process, and what comes of it."""

    make: Callable[[Path, str], object]
    read: str
    answer: str = "read"


class Imports:
    """An object whose pickle imports a module."""

    def __init__(self, module: str):
        self.module = module

    def __reduce__(self):
        return importlib.import_module, (self.module,)


def tfds(change):
    """A TFDS folder whose two JSON files are changed, given the name of a class."""

    def make(folder, module):
        path = tfds_folder(folder)
        files = path / "features.json", path / "dataset_info.json"
        features, info = (json.loads(file.read_text()) for file in files)
        change(features, info, f"{module}.Feature")
        for file, values in zip(files, (features, info), strict=True):
            file.write_text(json.dumps(values))

    return make


def other_feature(make):
    """A feature beside the text, given the name of a class."""
    return tfds(lambda features, info, name: inner(features).update(number=make(name)))


def inner(features):
    return features["featuresDict"]["features"]


def legacy(features, info, name):
    features.clear()
    features.update(type=DICT, content={"text": {"type": name, "content": {}}})


def saved(folder, module):
    folder = save_to_disk(folder / "saved", [("a text", 0), ("another", 1)])
    for file in ("state.json", "dataset_info.json"):
        values = json.loads((folder / file).read_text()) | {"builder_name": module}
        values |= {"_format_type": module, "features": {"text": {"_type": f"{module}.Value"}}}
        (folder / file).write_text(json.dumps(values))


def pickled(module):
    """A pickle, in ASCII, of a class of the module."""
    return f"c{module}\nType\n.".encode()


def arrow(folder, module):
    """The extension types that pyarrow up to 14.0 unpickled."""
    metadata = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickled(module),
    }
    field = pa.field("text", pa.string(), metadata=metadata)
    table = pa.table([["a text", "another"]], schema=pa.schema([field]))
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    with pa.ipc.new_stream(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table)


def numpy_files(folder, module):
    objects = np.array([Imports(module), None])
    np.save(folder / "a.npy", objects, allow_pickle=True)
    np.savez(folder / "a.npz", vectors=objects)


def model(folder, module):
    with_tokenizer("tiny_llama", folder)
    names = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer"), f"{module}.X")
    fields = {"auto_map": names, "tokenizer_class": f"{module}.X", "trust_remote_code": True}
    for file in ("config.json", "tokenizer_config.json"):
        path = folder / file
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | fields))
    weights = folder / "model.safetensors"
    safetensors.numpy.save_file(safetensors.numpy.load_file(weights), weights, {"format": module})


def tokenizer(folder, module):
    with_tokenizer("tiny_llama", folder)
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text()) | {"pre_tokenizer": {"type": f"{module}.Split"}}
    path.write_text(json.dumps(values))


def gguf(folder, module):
    text = f"{{{{ cycler.__init__.__globals__.__builtins__.__import__('{module}') }}}}"
    names = "tokenizer.chat_template", "general.architecture.module"
    weights = converted(tensors(PARITY / "tiny_llama"))
    write_gguf(folder / "a.gguf", weights, **dict.fromkeys(names, text))


def checkpoint(folder, module):
    """A checkpoint of Orbax whose metadata name another class for each that they name."""
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(1, {"w": jnp.ones(3, "f4")})
    changed = 0
    for path in folder.rglob("*METADATA*"):
        values = json.loads(path.read_text())
        path.write_text(json.dumps(renamed(values, f"{module}.Handler")))
        changed += module in path.read_text()
    assert changed


def renamed(values, name):
    if isinstance(values, dict):
        return {key: renamed(value, name) for key, value in values.items()}
    return name if isinstance(values, str) and "." in values else values


CORPUS = "jaxpe.data.load_corpus"
OF_TFDS = f"{CORPUS}(*folder.glob('news/*'))"
NO_CLASS = "is no class of TFDS"
ATTACKS = {
    "tfds_top": Attack(
        tfds(lambda features, info, name: features.update(pythonClassName=name)), OF_TFDS, NO_CLASS
    ),
    "tfds_nested": Attack(
        other_feature(lambda name: {"pythonClassName": name, "text": {}}), OF_TFDS, NO_CLASS
    ),
    "tfds_sequence": Attack(
        other_feature(
            lambda name: {
                "pythonClassName": SEQUENCE,
                "sequence": {"feature": {"pythonClassName": name, "text": {}}},
            }
        ),
        OF_TFDS,
        NO_CLASS,
    ),
    "tfds_json": Attack(
        other_feature(
            lambda name: {
                "pythonClassName": DICT,
                "jsonFeature": {"json": json.dumps({"x": {"type": name, "content": {}}})},
            }
        ),
        OF_TFDS,
        "field jsonFeature, not read",
    ),
    "tfds_field": Attack(
        other_feature(lambda name: {"python_class_name": name, "text": {}}),
        OF_TFDS,
        "python_class_name, not read",
    ),
    "tfds_legacy": Attack(tfds(legacy), OF_TFDS, "tfds_legacy/"),
    "tfds_info": Attack(
        tfds(
            lambda features, info, name: info.update(features={"pythonClassName": name, "text": {}})
        ),
        OF_TFDS,
        NO_CLASS,
    ),
    "tfds_module": Attack(
        tfds(lambda features, info, name: info.update(moduleName=name.split(".")[0])), OF_TFDS
    ),
    "saved": Attack(saved, f"{CORPUS}(folder / 'saved')"),
    "arrow": Attack(arrow, f"{CORPUS}(folder / 'a.arrow')"),
    "parquet": Attack(arrow, f"{CORPUS}(folder / 'a.parquet')"),
    "npy": Attack(numpy_files, "jaxpe.data.load_tokens(folder / 'a.npy')", "cannot be read"),
    "npz": Attack(numpy_files, "jaxpe.encodings.catalogue(f'{folder}/a.npz')", "Python objects"),
    "config": Attack(model, "jaxpe.nn.load_causal_lm(folder)"),
    "plan": Attack(model, "jaxpe.plans.read_config(folder / 'config.json')"),
    "tokenizer_config": Attack(model, "jaxpe.data.open_tokenizer(folder)"),
    "tokenizer": Attack(tokenizer, "jaxpe.data.open_tokenizer(folder)", "tokenizer.json"),
    "gguf": Attack(gguf, "jaxpe.nn.load_causal_lm(folder / 'a.gguf')"),
    "orbax": Attack(
        checkpoint,
        "import jax.numpy as jnp, jaxpe.training\n"
        "jaxpe.training.Checkpoints(folder, read_only=True).restore({'w': jnp.ones(3, 'f4')})",
    ),
    "run": Attack(
        lambda folder, module: run_folder(folder, config=SAVED | {"encoding": f"{module}:x"}),
        "import jaxpe.training\njaxpe.training.load_config(folder)",
        "is in a module that is not imported",
    ),
    # TFDS alone imports the module: the attacks above have a point.
    "control": Attack(
        tfds(lambda features, info, name: features.update(pythonClassName=name)),
        "import tensorflow_datasets\n"
        "tensorflow_datasets.builder_from_directory(*folder.glob('news/*'))",
        "Unrecognized FeatureConnector",
    ),
}
READ = """
import json, sys
from pathlib import Path
import jaxpe
answers = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(code, {"folder": Path(name), "jaxpe": jaxpe})
        answers[name] = "read"
    except jaxpe.InputError as error:
        answers[name] = str(error)
    except Exception as error:
        answers[name] = f"{type(error).__name__}: {error}"
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What comes of each attack, and the modules that were imported."""
    work = tmp_path_factory.mktemp("work")
    for name, attack in ATTACKS.items():
        (work / name).mkdir(exist_ok=True)
        (work / f"evil_{name}.py").write_text(f"open({str(work / name)!r} + '.ran', 'w')")
        attack.make(work / name, f"evil_{name}")
    codes = {name: attack.read for name, attack in ATTACKS.items()}
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=json.dumps(codes),
        cwd=work,
        env=os.environ | {"PYTHONPATH": f"{work}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), {path.stem for path in work.glob("*.ran")}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_module_that_a_file_names_is_imported(name, answers):
    said, imported = answers
    assert (name in imported) == (name == "control"), said[name]
    if ATTACKS[name].answer == "read":
        assert said[name] == "read"
    else:
        assert ATTACKS[name].answer in said[name]


@pytest.mark.parametrize("outside", ["../{SPLIT}", "{SPLIT.__doc__}", "/etc/{SPLIT}"])
@pytest.mark.parametrize("field", ["filepathTemplate", "filepath_template", "name"])
def test_files_of_a_dataset_lie_in_its_folder(field, outside, tmp_path):
    path = tfds_folder(tmp_path)
    assert load_corpus(path).documents == TEXTS["train"]
    info = json.loads((path / "dataset_info.json").read_text())
    for values in [info] if field == "name" else info["splits"]:
        values.pop("filepathTemplate", None)
        values[field] = outside
    (path / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(InputError, match="is no file name"):
        load_corpus(path)
