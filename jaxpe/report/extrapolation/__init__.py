"""The page of `jaxpe extrapolate`."""
