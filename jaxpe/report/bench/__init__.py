"""The page of `jaxpe bench`."""
