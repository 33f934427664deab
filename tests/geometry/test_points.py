"""Points in place of a matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpe.geometry import PointCloud, stress
from jaxpe.geometry.distances.points import as_points


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_summed_in_float32(dtype):
    narrow = jnp.asarray(np.random.default_rng(0).standard_normal((400, 3)), dtype)
    cloud = PointCloud(narrow, np.ones(400, bool))
    wide = PointCloud(narrow.astype(jnp.float32), cloud.present)
    value = jax.jit(stress)(narrow[:, :2], cloud)
    assert value.dtype == as_points(narrow).points.dtype == jnp.float32
    assert value == jax.jit(stress)(wide.points[:, :2], wide)
    assert 0.01 < value < 1
