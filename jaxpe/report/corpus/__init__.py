"""The page of `jaxpe report`."""
