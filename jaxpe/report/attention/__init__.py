"""The page of `jaxpe spectral`."""
