"""Programs kept in files: what is the same program, what is not, and what may be wrong with one."""

import functools
import os
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import EncodingSizes, catalogue
from jaxpe._core import stored
from jaxpe._core.compiled import compiled
from jaxpe._core.program import one_program
from jaxpe._core.stored import UndescribedError, describe, keep_programs
from tests.compilation import compilations


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Programs are kept in it; other surroundings than those of earlier runs and tests."""
    monkeypatch.setattr(stored, "_installation", lambda: (str(tmp_path), time.time()))
    stored._under.cache_clear()
    keep_programs(tmp_path / "programs")
    yield tmp_path / "programs"
    keep_programs(None)
    stored._under.cache_clear()


def new_process(monkeypatch):
    """Functions as a process has them that compiled nothing."""

    @compiled(static=("power",))
    def powers(x, *, power=2, shift=0.0):
        return {"x": x**power + shift, "eigenvalues": jnp.linalg.eigvalsh(x)}

    @one_program
    def shifted(x, *, by=1):
        return x + by, by

    @compiled("f")
    def applied(x, *, f):
        return f(x)

    for function in (powers, shifted, applied):
        function.__wrapped__.__module__ = "jaxpe.made_here"
    return powers, shifted, applied


def scaled(x, *, by):
    return by * x


scaled.__module__ = "jaxpe.made_here"


def test_second_process_compiles_nothing_and_finds_the_same(folder, monkeypatch):
    x, by = np.eye(3, dtype=np.float32), jnp.float32(3.0)

    def results():
        powers, shifted, applied = new_process(monkeypatch)
        f = functools.partial(scaled, by=by)
        return powers(x, power=3), powers(x, shift=1.0), shifted(x, by=2), applied(x, f=f)

    first = results()
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == 4
    with compilations() as done:
        second = results()
    assert not done
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert sorted(path.name for path in folder.iterdir()) == kept
    plain = new_process(monkeypatch)[0]
    keep_programs(None)
    np.testing.assert_array_equal(plain(x, power=3)["x"], first[0]["x"])


def test_results_are_remembered_by_the_numbers_of_the_arguments(folder, monkeypatch):
    def new_process():
        @compiled(static=("power",), remembered=True)
        def drawn(key, x, *, power):
            return {"drawn": jax.random.normal(key, dtype=x.dtype) + x**power, "none": None}

        drawn.__wrapped__.__module__ = "jaxpe.made_here"
        return drawn

    key, x = jax.random.key(1), np.arange(3, dtype=np.float32)
    expected = jax.random.normal(key, dtype=x.dtype) + x**2
    first = new_process()(key, x, power=2)
    program, result = sorted(folder.iterdir(), key=lambda path: len(path.name))
    content = result.read_bytes()
    program.unlink()
    with compilations() as done:
        found = new_process()(key, x, power=2)
    assert not done
    assert not program.exists()
    for each in (first, found, jax.jit(lambda x: new_process()(key, x, power=2))(x)):
        np.testing.assert_allclose(each["drawn"], expected, rtol=1e-6)
        assert each["none"] is None
    other = [(jax.random.key(2), x, 2), (key, x + 1, 2), (key, x, 3)]
    results = [new_process()(*given, power=power)["drawn"] for *given, power in other]
    assert len({result.tobytes() for result in [first["drawn"], *results]}) == 4
    result.write_bytes(content[:-1])  # is made again
    np.testing.assert_array_equal(new_process()(key, x, power=2)["drawn"], first["drawn"])
    assert result.read_bytes() == content
    result.unlink()
    monkeypatch.setattr(stored, "SMALL", 8)
    np.testing.assert_array_equal(new_process()(key, x, power=2)["drawn"], first["drawn"])
    assert not result.exists()


def test_arrays_of_a_function_are_arguments_of_its_program(folder, monkeypatch):
    x = np.ones(2, np.float32)
    *_, applied = new_process(monkeypatch)
    for by in (2.0, 5.0):
        found = applied(x, f=functools.partial(scaled, by=jnp.float32(by)))
        np.testing.assert_array_equal(found, by * x)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(np.float64).astype(np.float32)[None, 0],  # shape
        lambda x: x.astype(np.int32),
        lambda x: (x, 3),  # another static value
        lambda x: jnp.asarray(x),
    ],
)
def test_what_a_program_is_made_for(folder, monkeypatch, change):
    x = np.eye(2, dtype=np.float32)
    _, shifted, _ = new_process(monkeypatch)
    shifted(x)
    given = change(x)
    expected = x + 3 if isinstance(given, tuple) else np.asarray(given) + 1
    found = shifted(given[0], by=given[1]) if isinstance(given, tuple) else shifted(given)
    np.testing.assert_array_equal(found[0], expected)
    assert len(list(folder.iterdir())) == (1 if isinstance(given, jax.Array) else 2)


def test_precision_and_x64_are_other_programs(folder, monkeypatch):
    x = np.eye(2)
    powers, *_ = new_process(monkeypatch)
    for wide in (True, False):
        with jax.enable_x64(wide):
            assert powers(x)["x"].dtype == (np.float64 if wide else np.float32)
    with jax.default_matmul_precision("highest"):
        powers(x)
    assert len(list(folder.iterdir())) == 3


def test_a_call_in_another_program_is_no_program(folder, monkeypatch):
    """Also where all of its arguments are known."""
    x = np.eye(2, dtype=np.float32)
    powers, shifted, _ = new_process(monkeypatch)
    found = jax.eval_shape(lambda: (powers(x), shifted(x)[0]))
    assert found[1].shape == (2, 2)
    np.testing.assert_array_equal(jax.jit(lambda: shifted(x)[0])(), x + 1)
    assert not folder.exists()


def options_of_xla(monkeypatch):
    """The options that programs are compiled with from now on."""
    asked, compile_ = [], jax.stages.Lowered.compile

    def watched(self, compiler_options=None):
        asked.append(compiler_options)
        return compile_(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", watched)
    return asked


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options are those of a CPU")
def test_small_and_brief_programs_are_optimised_less(folder, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    asked = options_of_xla(monkeypatch)

    @compiled()
    def doubled(x):
        return 2 * x

    @compiled(brief=6)
    def halved(x):
        return x / 2

    for function in (doubled, halved):
        function.__wrapped__.__module__ = "jaxpe.made_here"
    monkeypatch.setattr(stored, "SMALL", 10)
    for size in (1, 2, 3):
        assert doubled(np.ones(size, np.float32))[0] == 2
        assert halved(np.ones(size, np.float32))[0] == 0.5
    quick, brief = stored._QUICK, stored._BRIEF
    assert asked == [quick, brief, quick, quick, None, None]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options are those of a CPU")
def test_flags_of_the_user_win(folder, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    asked = options_of_xla(monkeypatch)
    new_process(monkeypatch)[1](np.eye(2, dtype=np.float32))
    assert set(asked[0]) == set(stored._QUICK) - {"xla_backend_optimization_level"}


def test_a_process_that_ends_compiles_no_more(folder, monkeypatch):
    powers, *_ = new_process(monkeypatch)
    ended = threading.Thread(target=lambda: None)
    monkeypatch.setattr(stored.threading, "main_thread", lambda: ended)
    with pytest.raises(SystemExit):
        powers(np.eye(2, dtype=np.float32))
    assert not folder.exists()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="options are those of a CPU")
def test_options_that_xla_does_not_have_are_left_out(folder, monkeypatch):
    asked = options_of_xla(monkeypatch)
    monkeypatch.setattr(stored, "_QUICK", {"xla_no_such_option": True})
    powers, *_ = new_process(monkeypatch)
    assert powers(np.eye(2, dtype=np.float32))["x"][0, 0] == 1
    assert asked == [{"xla_no_such_option": True}, None]
    assert len(list(folder.iterdir())) == 1


def test_keys_of_another_kind_are_other_programs(folder):
    @compiled()
    def split(key):
        return jax.random.split(key, 3)

    split.__wrapped__.__module__ = "jaxpe.made_here"
    for kind in ("threefry2x32", "rbg"):
        key = jax.random.key(0, impl=kind)
        found = jax.random.key_data(split(key))
        np.testing.assert_array_equal(found, jax.random.key_data(jax.random.split(key, 3)))
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"0" * 100, None])
def test_damaged_files_are_made_again(folder, monkeypatch, content):
    x = np.eye(2, dtype=np.float32)
    expected = new_process(monkeypatch)[0](x)
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    jax.tree.map(np.testing.assert_array_equal, new_process(monkeypatch)[0](x), expected)


def test_program_that_the_cache_of_jax_knows_is_whole(folder, monkeypatch, tmp_path):
    """What comes out of it would be read again without its functions."""
    x = np.eye(2, dtype=np.float32)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "compiled"))
    try:
        for _ in range(3):
            new_process(monkeypatch)[0](x)
            for path in folder.iterdir():
                path.unlink()
        found = [new_process(monkeypatch)[0](x)["x"] for _ in range(2)]
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    np.testing.assert_array_equal(found, [x, x])


def test_oldest_programs_go_first(folder, monkeypatch):
    powers, *_ = new_process(monkeypatch)
    for size in (2, 3, 4):
        powers(np.eye(size, dtype=np.float32))
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_atime - 10, path.stat().st_mtime - 10))
    size = max(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr(stored, "LIMIT", 2 * size + 10)
    oldest = min(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    powers(np.eye(5, dtype=np.float32))
    assert not oldest.exists()
    assert len(list(folder.iterdir())) == 2


def test_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    keep_programs(tmp_path / "file" / "programs")
    try:
        powers, *_ = new_process(monkeypatch)
        np.testing.assert_array_equal(powers(np.eye(2))["x"], np.eye(2))
    finally:
        keep_programs(None)


def test_traced_and_undescribed_calls_run_as_ever(folder, monkeypatch):
    x = np.eye(2, dtype=np.float32)
    powers, shifted, applied = new_process(monkeypatch)
    np.testing.assert_array_equal(jax.jit(lambda x: powers(x)["x"])(x), x)
    np.testing.assert_array_equal(jax.vmap(lambda x: shifted(x)[0])(x), x + 1)
    np.testing.assert_array_equal(applied(x, f=lambda x: 2 * x), 2 * x)  # not of the package
    assert not folder.exists()
    with jax.debug_nans(True):
        shifted(x)
    assert not folder.exists()


def test_descriptions():
    entries = catalogue("rope", "wavelet", "t5")
    assert describe(entries) == describe(catalogue("rope", "wavelet", "t5"))
    assert describe(entries[0]) != describe(entries[1])
    assert describe(1) != describe(1.0) != describe(True) != describe("1")
    assert describe(EncodingSizes(dim=2)) != describe(EncodingSizes(dim=3))
    for value in (lambda x: x, np.ones(2), object(), {1}, jnp.ones(1), pytest):
        with pytest.raises(UndescribedError):
            describe(value)


def test_programs_of_a_process_serve_another(tmp_path):
    code = """
import sys, jax, numpy as np
from pathlib import Path
from jaxpe._core.stored import keep_programs
from jaxpe.geometry.repeated import split_key
import jaxpe
keep_programs(Path(sys.argv[1]))
keys = split_key(jax.random.key(0), number=3)
# It asks for the very object that says how keys are made, which is another in a file.
print(jax.random.poisson(keys[0], 1.0, (4,)), jax.random.poisson(jax.random.key(1), 1.0, (4,)))
rng = np.random.default_rng(0)
mds = jaxpe.classical_mds(jaxpe.euclidean_distances(rng.normal(size=(6, 3)).astype("f")), dim=2)
print(np.asarray(mds.eigenvalues).tolist())
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert any(tmp_path.iterdir())
