"""Table 4 of Cirrincione (2026), recomputed from the real corpora in float32."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxpe import encodings, geometry
from jaxpe.data import load_tokens

LENGTH, DIM = 128, 768


def test_table_4(data_dir):
    """SST-2, of which half of the positions are empty."""
    corpus = load_tokens(
        "sst2",
        tokenizer=data_dir / "bert-base-uncased" / "vocab.txt",
        special=True,
        length=LENGTH,
        data_dir=data_dir,
    )
    with jax.enable_x64(False):
        counts = geometry.count_tokens(
            corpus.ids, vocab_size=corpus.vocab_size, mask=corpus.mask, exclude=corpus.exclude
        )
        assert int(jnp.sum(counts.per_position == 0)) == 64
        mu = geometry.positional_distributions(counts, empty="uniform")
        D = geometry.hellinger_distances(mu)
        mds = geometry.classical_mds_from_gram(
            geometry.hellinger_gram(mu), dim=DIM, present=mu.present
        )
        assert mds.coordinates.dtype == jnp.float32
        assert mds.rank == 64
        assert geometry.stress(mds.coordinates, D) < 1e-6
        vectors = encodings.sinusoidal_vectors(jnp.arange(LENGTH), dim=DIM)
        np.testing.assert_allclose(geometry.stress(vectors, D), 271.0, atol=0.5)
        line = np.arange(LENGTH, dtype=np.float32)[:, None]
        line = (line - line.mean()) / line.std()
        np.testing.assert_allclose(geometry.stress(line, D), 0.563, atol=1e-3)
        for encoding in (mds.coordinates, D):
            rate = geometry.monotonicity_violation_rate(encoding)
            np.testing.assert_allclose(rate, 0.224, atol=0.002)
        of_the_text = geometry.monotonicity_violation_rate(D, include_self=True)
        np.testing.assert_allclose(of_the_text, 0.220, atol=0.001)
