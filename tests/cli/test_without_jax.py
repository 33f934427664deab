"""Commands that do not load JAX, whose import takes longer than their work."""

import json
import os
import subprocess
import sys

import gguf
import numpy as np

RUN = """
import sys
import jaxpe.plans
from jaxpe.cli.main import _run
for words in {commands}:
    _run(words)
    print("imported:", {{"jax", "scipy", "flax"}} & set(sys.modules), "matplotlib" in sys.modules)
"""


def test_rope_golden_and_batch_import_nothing_slow(tmp_path):
    """So a setting that JAX would refuse is no matter to them."""
    config, batch = tmp_path / "config.json", tmp_path / "batch.npz"
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
    config.write_text(json.dumps({"model_type": "llama", "rope_theta": 1e4, **sizes}))
    np.savez(batch, positions=np.arange(8)[None])
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    for key, size in {"block_count": 2, "embedding_length": 64, "attention.head_count": 2}.items():
        writer.add_uint32(f"llama.{key}", size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    commands = [
        ["rope", str(tmp_path / "model.gguf")],
        ["golden", str(config), "--out", str(tmp_path / "golden")],
        ["batch", str(batch)],
        ["rope", str(config), "--length", "4096", "--out", str(tmp_path / "page")],
    ]
    words = [sys.executable, "-c", RUN.format(commands=commands)]
    environment = {**os.environ, "JAX_ENABLE_X64": "maybe"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    imported = [line for line in done.stdout.splitlines() if line.startswith("imported:")]
    assert imported == ["imported: set() False"] * 3 + ["imported: set() True"]


HELPS = """
import sys
from jaxpe.cli.commands import options_class
for name in ("rope", "golden", "batch", "report", "extrapolate", "inspect"):
    options_class(name)
    print(name, {"jax", "flax", "matplotlib"} & set(sys.modules), "numpy" in sys.modules)
for name in ("encodings", "count", "merge"):
    options_class(name)
print("others", {"flax", "optax"} & set(sys.modules))
"""


def test_a_help_imports_nothing_slow():
    words = [sys.executable, "-c", HELPS]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["rope set() False", "golden set() False"]
    assert all(" set()" in line for line in done.stdout.splitlines())


def test_a_setting_that_jax_refuses_is_one_line():
    words = [sys.executable, "-m", "jaxpe", "train", "--help"]
    environment = {**os.environ, "JAX_ENABLE_X64": "maybe"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "JAX_ENABLE_X64" in done.stderr
