"""Table 4 of Cirrincione (2026), recomputed from the real corpora in float32."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpe
from jaxpe.data import load_tokens

DIM = 768


class Published(NamedTuple):
    """What has to come out, and how near."""

    length: int
    empty: int
    rank: int
    sinusoidal: tuple[float, float]
    random: tuple[float, float]
    alibi: float


TABLE_4 = {
    "sst2": Published(128, 64, 64, (271.0, 0.5), (1331.0, 15.0), 0.563),
    "imdb": Published(256, 2, 254, (1127.0, 2.0), (4609.0, 40.0), 3.051),
}


@pytest.mark.parametrize("source", TABLE_4)
def test_table_4(source, data_dir):
    theirs = TABLE_4[source]
    corpus = load_tokens(
        source,
        tokenizer=data_dir / "bert-base-uncased" / "vocab.txt",
        special=True,
        length=theirs.length,
        data_dir=data_dir,
    )
    with jax.enable_x64(False):
        counts = jaxpe.count_tokens(
            corpus.ids, vocab_size=corpus.vocab_size, mask=corpus.mask, exclude=corpus.exclude
        )
        assert int(jnp.sum(counts.per_position == 0)) == theirs.empty
        mu = jaxpe.positional_distributions(counts, empty="uniform")
        D = jaxpe.hellinger_distances(mu)
        mds = jaxpe.geometry.classical_mds_from_gram(
            jaxpe.hellinger_gram(mu), dim=DIM, present=mu.present
        )
        assert mds.coordinates.dtype == jnp.float32
        assert mds.rank == theirs.rank
        assert jaxpe.stress(mds.coordinates, D) < 1e-6
        vectors = jaxpe.sinusoidal_vectors(jnp.arange(theirs.length), dim=DIM)
        value, tolerance = theirs.sinusoidal
        np.testing.assert_allclose(jaxpe.stress(vectors, D), value, atol=tolerance)
        line = np.arange(theirs.length, dtype=np.float32)[:, None]
        line = (line - line.mean()) / line.std()
        np.testing.assert_allclose(jaxpe.stress(line, D), theirs.alibi, atol=1e-3)
        draws = [
            jaxpe.stress(
                jaxpe.encodings.random_vectors(jax.random.key(k), theirs.length, dim=DIM), D
            )
            for k in range(8)
        ]
        value, tolerance = theirs.random
        np.testing.assert_allclose(np.mean(draws), value, atol=tolerance)
        if source == "sst2":
            for encoding in (mds.coordinates, D):
                rate = jaxpe.monotonicity_violation_rate(encoding)
                np.testing.assert_allclose(rate, 0.224, atol=0.002)
            of_the_text = jaxpe.monotonicity_violation_rate(D, include_self=True)
            np.testing.assert_allclose(of_the_text, 0.220, atol=0.001)
