"""Encodings whose vectors are in a file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe import encodings
from jaxpe._core.errors import InputError
from jaxpe.encodings import from_file
from jaxpe.encodings.entries import resolve
from jaxpe.encodings.families.vector_files import vectors_file

P = np.arange(12.0, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "encoding.npz"
    path.write_bytes(vectors_file(P))
    return path


def test_the_vectors_are_those_of_the_file(path):
    encoding = from_file(path, dim=5)
    params = encoding.init(jax.random.key(0))
    found = encoding.vectors(params, jnp.arange(4))
    np.testing.assert_array_equal(found, np.pad(P, ((0, 0), (0, 2))))
    scaled = from_file(path, scale=2.0, trainable=True)
    np.testing.assert_array_equal(scaled.init(jax.random.key(0))["table"], 2 * P)


def test_a_file_is_named_where_a_name_is_asked_for(path):
    entry = resolve(str(path))
    encoding = entry.make(encodings.EncodingSizes(dim=8, length=4))
    x = encoding.embed(encoding.init(jax.random.key(0)), jnp.zeros((4, 8)), jnp.arange(4))
    np.testing.assert_array_equal(x[:, :3], P)
    assert entry.fitted
    assert entry.vectors


@pytest.mark.parametrize(
    "arrays",
    [
        {"table": P},
        *({"vectors": x} for x in (P[0], P[:0], P.astype(int), P * np.nan, 1e300 * np.float64(P))),
    ],
)
def test_another_content_is_refused(tmp_path, arrays):
    path = tmp_path / "other.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=r"other\.npz"):
        resolve(str(path))


@pytest.mark.parametrize("dtype", [">f4", "<f2", np.longdouble])
def test_other_floats_are_read(tmp_path, dtype):
    np.savez(tmp_path / "other.npz", vectors=P.astype(dtype))
    encoding = from_file(tmp_path / "other.npz")
    np.testing.assert_array_equal(encoding.init(jax.random.key(0))["table"], P)


def test_more_than_a_file_may_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxpe.encodings.families.vector_files.LARGEST_FILE", 10_000)
    np.savez_compressed(tmp_path / "zeros.npz", vectors=np.zeros((1, 10_000), np.float16))
    with pytest.raises(InputError, match="more than 10,000"):
        from_file(tmp_path / "zeros.npz")


def test_no_file_and_a_damaged_one_are_refused(tmp_path, path):
    with pytest.raises(InputError, match="cannot be read"):
        from_file(tmp_path / "nothing.npz")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot be read"):
        from_file(path)
