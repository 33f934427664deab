"""Models by their names on the Hugging Face hub, as local folders of files; no code is fetched.

`huggingface_hub` downloads the files into its cache, unless the cache already has them.
"""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any, TypeVar

from jaxpe._core.errors import InputError, MissingExtraError, reason, require
from jaxpe._core.json_values import read_json
from jaxpe._core.memory import check_bytes

Options = TypeVar("Options")
_PART = r"[A-Za-z0-9][\w.-]{0,95}"
_NAME = re.compile(rf"({_PART}/{_PART})(/(?:{_PART}/)*{_PART}\.gguf)?", re.ASCII)
_FILE = re.compile(r".*\.(gguf|json|safetensors)")  # of one folder: no name of a repository
_SHARD = re.compile(r"[\w.-]+\.safetensors", re.ASCII)  # no code, and no path out of the folder
_FOLDER = re.compile(r"models--.+?--(.+)")  # folder of a repository in the cache
_CONFIG, _ADAPTER = "config.json", "adapter_config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "vocab.txt")
_LARGEST_INDEX = 2**26  # bytes


def model_folder(
    name: str | os.PathLike[str], *, revision: str | None = None, weights: bool = False
) -> Path:
    """Local folder or file of a model; files of a hub name are downloaded to the hub's cache.

    An existing path is returned unchanged. Otherwise `owner/name` is a repository on the hub, and
    `owner/name/file.gguf` is a file in a repository. The network is not used if the cache has all
    files. Any other path is returned unchanged, and the caller reports its errors.

    Args:
        name: path, or name on the hub.
        revision: branch, tag or commit on the hub; None for the default branch.
        weights: whether to download safetensors and tokenizer in addition to `config.json` and
            `generation_config.json`.

    Raises:
        InputError: a folder of an adapter alone, no such repository, revision or file, a
            repository that needs a token, no network, or weights larger than the memory.
        MissingExtraError: a name on the hub, if the extra `hub` is not installed.

    >>> model_folder("nowhere").as_posix()
    'nowhere'
    """
    if os.path.isfile(os.path.join(name, _ADAPTER)) and not os.path.exists(
        os.path.join(name, _CONFIG)
    ):
        raise InputError(
            f"{name} is an adapter such as LoRA ({_ADAPTER}), without the weights of its model: "
            "merge them by PEFT's `merge_and_unload().save_pretrained(...)`, and pass that folder"
        )
    named = None if os.path.exists(name) else _NAME.fullmatch(os.fspath(name))
    if named is None or (named[2] is None and _FILE.fullmatch(named[1])):
        if revision is not None:
            raise InputError(
                f"`revision={revision}` is for names on the hub, such as Qwen/Qwen3-8B: leave it "
                f"out for the path {name}"
            )
        return Path(name)
    file = (named[2] or f"/{_CONFIG}")[1:]
    library = _library(named[0])
    source = _Source(library, named[0], named[1], revision, file, weights and named[2] is None)
    path = source.cached() or source.fetched()
    return path if named[2] else path.parent


def local_model_options(options: Options, name: str, *, weights: bool = True) -> Options:
    """Options with a local path in the field `name`, and `revision` reset to None.

    Args:
        options: dataclass with a field `revision`.
        name: field of `options` with the model; its value None means no model.
        weights: argument of `model_folder`.
    """
    fields: Any = options
    model, revision = getattr(fields, name), fields.revision
    if model is None:
        if revision is not None:
            raise InputError(f"`revision={revision}` needs a model: pass `{name}`, or leave it out")
        return options
    path = model_folder(model, revision=revision, weights=weights)
    local = path if isinstance(model, Path) else str(path)
    return dataclasses.replace(fields, **{name: local, "revision": None})


def model_name(path: Path) -> str:
    """Name of a model, from its folder or its repository in the hub's cache.

    >>> model_name(Path("hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46"))
    'Qwen3-8B'
    """
    path = path.absolute()
    if path.parent.name == "snapshots" and (match := _FOLDER.fullmatch(path.parents[1].name)):
        return match[1]
    return path.resolve().name


@dataclasses.dataclass(frozen=True)
class _Source:
    """Required files of a repository, and the library that downloads them."""

    library: Any
    name: str
    repository: str
    revision: str | None
    file: str
    weights: bool

    def cached(self) -> Path | None:
        """Path of the file, if the cache has all required files; else None."""
        location = self.library.try_to_load_from_cache(
            self.repository, self.file, revision=self.revision
        )
        if not isinstance(location, str):  # None, or a mark that the repository has no such file
            return None
        path = Path(location)
        return path if not self.weights or _has_weights(path.parent) else None

    def fetched(self) -> Path:
        """Path of the file, downloaded together with all other required files."""
        library, errors = self.library, require("huggingface_hub.errors", extra="hub")
        try:
            # Fails at once; a download would retry for half a minute.
            address = library.hf_hub_url(self.repository, self.file, revision=self.revision)
            library.get_hf_file_metadata(address)
            path = Path(library.hf_hub_download(self.repository, self.file, revision=self.revision))
            if self.file == _CONFIG:
                self._fetch_beside(path.parent, errors)
        except (InputError, MemoryError):
            raise
        except Exception as error:  # of huggingface_hub, and of the libraries that it calls
            raise InputError(self._message(error, errors)) from error
        return path

    def _fetch_beside(self, folder: Path, errors: Any) -> None:
        """Fetch the other required files, from the commit of config.json."""

        def fetch(name: str) -> bool:
            try:
                self.library.hf_hub_download(self.repository, name, revision=folder.name)
            except errors.EntryNotFoundError as error:
                if isinstance(error, errors.LocalEntryNotFoundError):  # the network failed
                    raise
                return False
            return True

        fetch("generation_config.json")
        if not self.weights:
            return
        if not fetch(_WEIGHTS):
            if not fetch(_INDEX):
                raise InputError(
                    f"{self.repository} has neither {_WEIGHTS} nor {_INDEX}; pass a model whose "
                    "weights are safetensors"
                )
            for shard in _shards(folder, owner=self.repository):
                fetch(shard)
        any(map(fetch, _TOKENIZERS))

    def _message(self, error: Exception, errors: Any) -> str:
        status = getattr(getattr(error, "response", None), "status_code", None)
        missing = isinstance(error, errors.RepositoryNotFoundError)
        local = f"{self.name} is not a local file or folder"
        token = "run `hf auth login`, or set HF_TOKEN"
        if isinstance(error, errors.GatedRepoError) or (status in (401, 403) and not missing):
            return (
                f"{self.repository} is gated and needs a token with access: accept the terms on "
                f"its page of the hub, then {token}"
            )
        if missing:
            return (
                f"{local}, and the hub has no public repository of this name: check the name, or "
                f"for a private one {token}"
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{self.repository} has no branch, tag or commit of `revision={self.revision}`"
        if status == 404:
            return (
                f"{self.repository} has no {self.file}: pass a repository with a {_CONFIG}, or a "
                f".gguf file of one as {self.repository}/FILE.gguf"
            )
        offline = isinstance(error, errors.OfflineModeIsEnabled)
        cause = "HF_HUB_OFFLINE is set" if offline else reason(error)
        files = self.repository if self.weights else f"{self.repository} {self.file}"
        at = "" if self.revision is None else f" at revision {self.revision}"
        return (
            f"{local}, is not in the hub's cache, and cannot be downloaded ({cause}): run "
            f"`hf download {files}`{at} with a network, or pass {_local_folder(self.name)}"
        )


def _local_folder(name: str) -> str:
    """The folder of this name in JAXPE_MODELS_DIR, or what to pass instead."""
    folder = Path(os.environ.get("JAXPE_MODELS_DIR", ""), name.rpartition("/")[2])
    return str(folder) if folder.is_dir() else "a local folder"


def _library(name: str) -> Any:
    try:
        return require("huggingface_hub", extra="hub")
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{name} is not a local file or folder; for the hub, {error}", name=error.name
        ) from error


def _has_weights(folder: Path) -> bool:
    """Whether a folder has all weights and a tokenizer."""
    sharded = not (folder / _WEIGHTS).is_file() and (folder / _INDEX).is_file()
    files = _shards(folder, owner=str(folder)) if sharded else [_WEIGHTS]
    return all((folder / file).is_file() for file in files) and any(
        (folder / file).is_file() for file in _TOKENIZERS
    )


def _shards(folder: Path, *, owner: str) -> list[str]:
    """Names of weight files in an index, if their total size fits into memory."""
    index = read_json(folder / _INDEX, remedy="fetch it again", largest=_LARGEST_INDEX)
    about, files = index.get("metadata"), index.get("weight_map")
    size = about.get("total_size") if isinstance(about, dict) else None
    if isinstance(size, int):
        check_bytes(size, what=owner, remedy="take a smaller model")
    names = set(files.values()) if isinstance(files, dict) else set()
    return sorted(name for name in names if _SHARD.fullmatch(str(name)))
