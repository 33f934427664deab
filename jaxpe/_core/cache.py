"""Folder of caches: `JAXPE_CACHE_DIR`, else the user's cache folder."""

import importlib
import os
from pathlib import Path


def cache_directory() -> Path | None:
    """The folder of caches, made if absent; None where it cannot be trusted or is not known.

    What a cache holds is loaded as programs, so only this user may be able to write to it.
    """
    folder = _configured_folder()
    return None if folder is None or untrusted(folder) else folder


def untrusted(folder: Path) -> str:
    """Reason why a folder of caches is not used; "" for one that is."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return error.strerror or str(error)
    if not hasattr(os, "getuid"):  # Windows, where a user's folder is private
        return ""
    if status.st_uid != os.getuid():
        return "it belongs to another user"
    return "others can write to it" if status.st_mode & 0o022 else ""


def cache_warning() -> str:
    """Line about the folder of caches where it is not used, else ""."""
    folder = _configured_folder()
    reason = "" if folder is None else untrusted(folder)
    remedy = f"run `chmod go-w {folder}`, or " if "can write" in reason else ""
    return reason and f"nothing is cached in {folder}: {reason}; {remedy}set JAXPE_CACHE_DIR"


def _configured_folder() -> Path | None:
    folder = os.environ.get("JAXPE_CACHE_DIR")
    try:
        return Path(folder or importlib.import_module("platformdirs").user_cache_dir("jaxpe"))
    except ImportError:
        return None
