"""A hostile configuration: float64, strict dtype promotion, no rank promotion, types checked."""

import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

install_import_hook("jaxpe", "beartype.beartype")


@pytest.fixture
def data_dir() -> Path:
    """The directory with the real corpora, as users set it; the test skips where it is absent."""
    setting = os.environ.get("JAXPE_DATA_DIR")
    if not setting:
        pytest.skip("JAXPE_DATA_DIR is not set: no real corpora here")
    return Path(setting)
