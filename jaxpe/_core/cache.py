"""Folder of caches: `JAXPE_CACHE_DIR`, else the user's cache folder."""

import importlib
import os
from pathlib import Path


def cache_directory() -> Path | None:
    """The folder, which need not exist; None where none is known (no `platformdirs`)."""
    folder = os.environ.get("JAXPE_CACHE_DIR")
    try:
        return Path(folder or importlib.import_module("platformdirs").user_cache_dir("jaxpe"))
    except ImportError:
        return None
