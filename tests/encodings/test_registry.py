"""Registration: a new encoding is one function in one place, and is found everywhere."""

import dataclasses
import importlib
import inspect
import sys

import pytest

import jaxpe
from jaxpe import InputError
from jaxpe.encodings import CatalogueEntry, catalogue, registry, resolve

MODULE = '''
"""Encodings of a user."""

import jax.numpy as jnp
import jaxpe
from jaxpe.encodings import CatalogueEntry, register


@register("halved", source="a user", vectors="a line")
def halved(sizes):
    """ALiBi at slope 1/2."""
    return jaxpe.alibi(num_heads=sizes.num_heads, slopes=0.5)


def plain(sizes):
    return jaxpe.sinusoidal(dim=sizes.dim, base=100.0)


entry = CatalogueEntry("stretched", "absolute", plain, "a user", "its vectors")
number = 3


def by_heads(*, num_heads, slopes=0.25):
    return jaxpe.alibi(num_heads=num_heads, slopes=slopes)


def wrong(sizes):
    return sizes.dim


def failing(sizes):
    raise KeyError("no table")


hooks = {
    "short": {"vectors": lambda params, i: jnp.ones((2, 4))},
    "whole": {"vectors": lambda params, i: jnp.ones((len(i), 4), int)},
    "heads": {"bias": lambda params, q, k, i, j: jnp.zeros((7, len(i), len(j)))},
    "additive": {"mask": lambda params, q, k, i, j: jnp.zeros((len(i), len(j)))},
    "cut": {"query": lambda params, q, i: q[1:]},
    "flat": {"embed": lambda params, x, i: x[..., 0]},
    "pair": {"context": lambda params, x, i, rows: x, "bias": lambda *_: None},
}


for name, own in hooks.items():
    globals()[name] = lambda sizes, own=own: jaxpe.Encoding(**own)
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The name of a user's module in the current directory."""
    (tmp_path / "windows_of_mine.py").write_text(MODULE)
    (tmp_path / "broken_of_mine.py").write_text("import nothing_of_that_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "windows_of_mine"
    sys.modules.pop("windows_of_mine", None)


def test_a_module_of_the_current_directory_is_found(own):
    assert resolve(f"{own}:halved")[:4:3] == ("halved", "a user")
    assert catalogue("alibi", f"{own}:halved") == (resolve("alibi"), resolve("halved"))
    assert catalogue()[-1] == resolve("halved")  # behind those of jaxpe
    assert resolve("halved").family == own


def test_a_function_or_an_entry_stand_for_an_encoding(own):
    found = resolve(f"{own}:plain")
    assert (found.name, found.family, bool(found.vectors)) == (f"{own}:plain", own, True)
    assert resolve(f"{own}:plain") == found
    assert resolve(f"{own}:by_heads").make(jaxpe.EncodingSizes()).defines("bias")
    assert resolve(f"{own}:entry").name == "stretched"
    assert all(entry.name != found.name for entry in catalogue())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "'no_such_module' cannot be imported"),
        ("broken_of_mine:f", r"cannot be imported \(ModuleNotFoundError: .*nothing_of_that_name"),
        ("windows_of_mine:other", "has no 'other'"),
        ("windows_of_mine:number", "is int, not an encoding"),
        ("windows_of_mine:wrong", "wrong.*int"),
        ("windows_of_mine:failing", "failing.*KeyError: 'no table'"),
        ("windows_of_mine:short", r"short.*`vectors` returns float.. \[2, 4\].*\[8, 4\]"),
        ("windows_of_mine:whole", "whole.*`vectors` returns int"),
        ("windows_of_mine:heads", r"heads.*shape"),
        ("windows_of_mine:additive", "additive.*`mask` returns float.*bool"),
        ("windows_of_mine:cut", "cut.*`query`"),
        ("windows_of_mine:flat", "flat.*`embed`"),
        ("windows_of_mine:pair", "pair.*ValueError"),
    ],
)
def test_what_is_no_encoding_is_refused(own, name, message):
    with pytest.raises(InputError, match=message):
        resolve(name)


def test_a_module_read_again_replaces_its_entries(own):
    resolve(f"{own}:halved")
    module = importlib.reload(sys.modules[own])
    assert resolve("halved").make is module.halved
    assert sum(entry.name == "halved" for entry in catalogue()) == 1


def test_a_name_belongs_to_one_function(own):
    with pytest.raises(ValueError, match=r"families\.rotary\.rope .*test_registry.*other"):

        @jaxpe.encodings.register("rope")
        def other(sizes):
            return jaxpe.identity()

    with pytest.raises(ValueError, match="registered twice"):

        @jaxpe.encodings.register("twice")
        @jaxpe.encodings.register("twice")
        def twice(sizes):
            return jaxpe.identity()


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a+b", "a:b", "[red]a", "a.npz", "a" * 5000])
def test_a_name_that_could_not_be_asked_for_is_refused(name):
    with pytest.raises(ValueError, match="letters, digits"):
        jaxpe.encodings.register(name)


def test_families_are_the_files_of_jaxpe():
    families = dict.fromkeys(entry.family for entry in catalogue())
    assert list(families) == [
        "absolute", "orthogonal", "logarithmic", "rotary", "learned_frequencies",
        "context_extension", "temperature", "bias", "relative",
        "disentangled", "data_dependent", "masks", "layer_patterns",
    ]  # fmt: skip
    for found in registry._REGISTERED.values():
        file = found.function.__module__.rpartition(".")[2]
        assert found.entry.family == file or (found.entry.name, file) == ("none", "base")


def test_registered_factories_are_public_and_documented():
    for found in registry._REGISTERED.values():
        function = found.function
        assert getattr(jaxpe.encodings, function.__name__) is function
        assert function.__name__ in jaxpe.encodings.__all__
        assert ">>>" in inspect.getdoc(function)


def test_every_entry_says_in_one_line_what_it_does():
    lines = [entry.description for entry in catalogue()]
    assert len(set(lines)) == len(lines)
    assert all(10 < len(line) < 130 and "\n" not in line for line in lines)


def test_factories_of_each_family_are_registered():
    """But for those that need more than sizes: arrays, a function, or settings of a checkpoint."""
    registered = {found.function.__name__ for found in registry._REGISTERED.values()}
    made = {
        name
        for name in jaxpe.encodings.__all__
        if inspect.isfunction(f := getattr(jaxpe.encodings, name))
        if inspect.signature(f).return_annotation is jaxpe.Encoding
    }
    assert made - registered == {
        "from_file",
        "from_matrix",
        "from_vectors",
        "per_head",
        "rescaled",
        "rope_from_hf",
        "scale_positions",
    }


def test_a_new_encoding_is_in_the_tables(own, command):
    words = ("encodings", "rope", f"{own}:halved", f"{own}:plain", "--dim", 16, "--heads", 2)
    words = (*words, "--about", "overview")
    code, out, err = command(*words, "--head-dim", 8, "--length", 32, "--form", "markdown")
    assert code == 0, err
    names = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("|")]
    rows = ["encoding", "---", "rope", "halved", f"{own}:plain"]
    assert names == 2 * rows  # what is computed, and where it comes from
    assert f"| halved | {own} |" in out


def test_a_new_encoding_is_scored(own):
    from jaxpe.analysis.corpus.vectors import scored_entries

    names = [f"{own}:halved", f"{own}:plain"]
    assert [entry.name for entry in scored_entries(names)][-2:] == ["halved", names[1]]
    with pytest.raises(InputError, match=r"`encodings`: t5 has no position vectors"):
        scored_entries(["t5"])
    dash = CatalogueEntry("dash", "mine", lambda sizes: jaxpe.identity(), vectors="–")
    with pytest.raises(InputError, match="dash"):
        scored_entries([dash])


def test_a_new_encoding_can_be_trained_with_and_compared(own, tmp_path):
    from jaxpe.analysis.extrapolation.encodings import trained_encoding
    from jaxpe.training.config import TrainConfig, encoding_entries

    names = [f"{own}:halved", f"{own}:plain"]
    config = TrainConfig(source="words.txt", out=tmp_path, encoding="+".join(names))
    assert encoding_entries(config) == catalogue(*names)
    with pytest.raises(InputError, match=r"`encoding`: .*has no 'other'"):
        encoding_entries(dataclasses.replace(config, encoding=f"{own}:other"))
    sizes = jaxpe.EncodingSizes(dim=8, num_heads=2, head_dim=4, length=2)
    assert trained_encoding(names[0], sizes).defines("bias")
