"""Registration: a new encoding is one function in one place, and is found everywhere."""

import importlib
import inspect
import sys

import pytest

from jaxpe import InputError, encodings
from jaxpe.analysis.corpus.vectors import scored_entries
from jaxpe.analysis.extrapolation.encodings import trained_encoding
from jaxpe.encodings import catalogue, registry
from jaxpe.encodings.entries import resolve
from jaxpe.training.config import TrainConfig, encoding_entries

MODULE = '''
"""Encodings of a user."""

import jax.numpy as jnp
import jaxpe
from jaxpe.encodings import CatalogueEntry, register


@register("halved", source="a user", vectors="a line")
def halved(sizes):
    """ALiBi at slope 1/2."""
    return jaxpe.encodings.alibi(num_heads=sizes.num_heads, slopes=0.5)


def plain(sizes):
    return jaxpe.encodings.sinusoidal(dim=sizes.dim, base=100.0)


entry = CatalogueEntry("stretched", "absolute", plain, "a user", "its vectors")
number = 3


def by_heads(*, num_heads, slopes=0.25):
    return jaxpe.encodings.alibi(num_heads=num_heads, slopes=slopes)


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
    globals()[name] = lambda sizes, own=own: jaxpe.encodings.Encoding(**own)
'''


# Encodings of the module whose hook returns another shape or type.
HOOKS = {"short": "vectors", "whole": "vectors", "additive": "mask"}
HOOKS |= {"cut": "query", "flat": "embed"}


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
    assert resolve(f"{own}:by_heads").make(encodings.EncodingSizes()).defines("bias")
    assert resolve(f"{own}:entry").name == "stretched"
    assert all(entry.name != found.name for entry in catalogue())


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("no_such_module:f", "imported"),
        ("broken_of_mine:f", "nothing_of_that_name"),
        ("windows_of_mine:other", "other"),
        ("windows_of_mine:number", "int"),
        ("windows_of_mine:wrong", "int"),
        ("windows_of_mine:failing", "KeyError"),
        *((f"windows_of_mine:{name}", f"`{hook}`") for name, hook in HOOKS.items()),
        ("windows_of_mine:heads", "shape"),
        ("windows_of_mine:pair", "ValueError"),
    ],
)
def test_what_is_no_encoding_is_refused(own, name, word):
    with pytest.raises(InputError, match=word):
        resolve(name)


def test_a_module_read_again_replaces_its_entries(own):
    resolve(f"{own}:halved")
    module = importlib.reload(sys.modules[own])
    assert resolve("halved").make is module.halved
    assert sum(entry.name == "halved" for entry in catalogue()) == 1


def test_a_name_belongs_to_one_function(own):
    with pytest.raises(ValueError, match="rope"):

        @encodings.register("rope")
        def other(sizes):
            return encodings.identity()

    with pytest.raises(ValueError, match="twice"):

        @encodings.register("twice")
        @encodings.register("twice")
        def twice(sizes):
            return encodings.identity()


def test_registered_factories_are_public_and_documented():
    for found in registry._REGISTERED.values():
        function = found.function
        assert getattr(encodings, function.__name__) is function
        assert function.__name__ in encodings.__all__
        assert ">>>" in inspect.getdoc(function)


def test_a_new_encoding_is_scored_and_trained_with(own, tmp_path):
    names = [f"{own}:halved", f"{own}:plain"]
    assert [entry.name for entry in scored_entries(names)][-2:] == ["halved", names[1]]
    with pytest.raises(InputError, match="t5"):
        scored_entries(["t5"])
    config = TrainConfig(source="words.txt", out=tmp_path, encoding="+".join(names))
    assert encoding_entries(config) == catalogue(*names)
    sizes = encodings.EncodingSizes(dim=8, num_heads=2, head_dim=4, length=2)
    assert trained_encoding(names[0], sizes).defines("bias")
