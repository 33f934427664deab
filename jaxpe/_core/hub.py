"""Models by their names on the Hugging Face hub, as local folders of files; no code is fetched.

`huggingface_hub` downloads the files into its cache, unless the cache already has them.
"""

import dataclasses
import fnmatch
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
_FOLDER = re.compile(r"models--.+?--(.+)")  # folder of a repository in the cache
_CONFIG, _ADAPTER = "config.json", "adapter_config.json"
_INDEX = "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "vocab.txt")
_WEIGHTS = ("model*.safetensors", _INDEX, *_TOKENIZERS)  # no code
_LARGEST_INDEX = 2**26  # bytes
_MODEL_FILES = (_CONFIG, "*.gguf")  # of a folder that is a model
_NAMED = 8  # folders in a message


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
    wanted = [file]
    if named[2] is None:
        wanted += ["generation_config.json", *(_WEIGHTS if weights else ())]
    try:
        library = require("huggingface_hub", extra="hub")
        path = _cached(library, named[1], revision, wanted)
        path = path or _fetched(library, named[1], revision, wanted)
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{name} is not a local file or folder; for the hub, {error}", name=error.name
        ) from error
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of huggingface_hub, and of the libraries that it calls
        files = named[1] if weights and named[2] is None else f"{named[1]} {file}"
        raise InputError(_message(error, named[0], named[1], revision, files)) from error
    return path if named[2] else path.parent


def check_model_folder(path: Path) -> None:
    """Raise `InputError`, which names the models, for a folder of folders of models.

    >>> check_model_folder(Path("nowhere"))
    """
    if any(next(path.glob(pattern), None) for pattern in _MODEL_FILES):
        return
    found = {str(one.parent) for pattern in _MODEL_FILES for one in path.glob(f"*/{pattern}")}
    if models := sorted(found):
        shown = ", ".join(models[:_NAMED]) + (", ..." if len(models) > _NAMED else "")
        raise InputError(f"{path} is a folder of models: pass one of {shown}")


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


def _cached(library: Any, repository: str, revision: str | None, wanted: list[str]) -> Path | None:
    """Path of the first file, if the cache has all required files; else None."""
    found = library.try_to_load_from_cache(repository, wanted[0], revision=revision)
    if not isinstance(found, str):  # None, or a mark that the repository has no such file
        return None
    path = Path(found)
    return path if _INDEX not in wanted or _has_weights(path.parent) else None


def _fetched(library: Any, repository: str, revision: str | None, wanted: list[str]) -> Path:
    """Path of the first file, downloaded together with all other required files."""
    about = library.HfApi().model_info(repository, revision=revision, files_metadata=True)
    sizes = {x.rfilename: x.size or 0 for x in about.siblings if _matches(x.rfilename, wanted)}
    if wanted[0] not in sizes:
        raise InputError(
            f"{repository} has no {wanted[0]}: pass a repository with a {_CONFIG}, or a .gguf file "
            f"of one as {repository}/FILE.gguf"
        )
    if _INDEX in wanted and not any(name.endswith(".safetensors") for name in sizes):
        raise InputError(
            f"{repository} has no model.safetensors; pass a model whose weights are safetensors"
        )
    check_bytes(sum(sizes.values()), what=repository, remedy="take a smaller model")
    folder = library.snapshot_download(repository, revision=revision, allow_patterns=[*sizes])
    return Path(folder, wanted[0])


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _has_weights(folder: Path) -> bool:
    """Whether a folder has all weights and a tokenizer."""
    files = ["model.safetensors"]
    if not (folder / files[0]).is_file() and (folder / _INDEX).is_file():
        index = read_json(folder / _INDEX, remedy="fetch it again", largest=_LARGEST_INDEX)
        files = list(map(str, dict(index.get("weight_map", {})).values()))
    return all((folder / file).is_file() for file in files) and any(
        (folder / file).is_file() for file in _TOKENIZERS
    )


def _message(error: Exception, name: str, repository: str, revision: str | None, files: str) -> str:
    """Remedy for an error of `huggingface_hub`, or of the libraries that it calls."""
    errors = require("huggingface_hub.errors", extra="hub")
    status = getattr(getattr(error, "response", None), "status_code", None)
    missing = isinstance(error, errors.RepositoryNotFoundError)
    local, token = f"{name} is not a local file or folder", "run `hf auth login`, or set HF_TOKEN"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no branch, tag or commit of `revision={revision}`"
    if isinstance(error, errors.GatedRepoError) or (status in (401, 403) and not missing):
        return (
            f"{repository} is gated and needs a token with access: accept the terms on its page of "
            f"the hub, then {token}"
        )
    if missing:
        return (
            f"{local}, and the hub has no public repository of this name: check the name, or for a "
            f"private one {token}"
        )
    offline = isinstance(error, errors.OfflineModeIsEnabled)
    cause = "HF_HUB_OFFLINE is set" if offline else reason(error)
    at = "" if revision is None else f" at revision {revision}"
    folder = Path(os.environ.get("JAXPE_MODELS_DIR", ""), name.rpartition("/")[2])
    return (
        f"{local}, is not in the hub's cache, and cannot be downloaded ({cause}): run "
        f"`hf download {files}`{at} with a network, or pass "
        f"{folder if folder.is_dir() else 'a local folder'}"
    )
