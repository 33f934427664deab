"""Names on the hub: its cache as it lies on a disk, and a server that speaks its addresses."""

import json
import sys
import threading
import urllib.parse
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe._core.hub import check_model_folder, local_model_options, model_folder, model_name
from jaxpe.plans import RopeOptions
from jaxpe.training import TrainConfig
from tests.analysis.inspect.folders import with_tokenizer

library = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")

COMMIT, OLDER = "a" * 40, "b" * 40
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
}


class Hub(NamedTuple):
    """Files of repositories by name and revision, what was asked, and the cache of the client."""

    files: dict[str, dict[str, bytes]]
    asked: list[str]
    cache: Path
    refusals: dict[str, tuple[int, str]]  # status and code of a repository that is not given out


@pytest.fixture
def online(tmp_path, monkeypatch) -> Iterator[Hub]:
    """A hub on this machine with nothing on it, and an empty cache."""
    found = Hub({}, [], tmp_path / "cache", {})

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self.wfile.write(self._answer())

        def _answer(self) -> bytes:
            found.asked.append(f"{self.command} {self.path}")
            path = urllib.parse.urlparse(self.path).path
            listed = path.startswith("/api/models/")
            owner, name, *rest = path.removeprefix("/api/models")[1:].split("/", 4 - listed)
            repository, file = f"{owner}/{name}", "" if listed else rest[-1]
            files, revision = found.files.get(repository), rest[1] if rest else "main"
            status, code, body = *found.refusals.get(repository, (200, "")), b""
            if status == 200 and files is None:
                status, code = 401, "RepoNotFound"
            elif status == 200 and revision not in ("main", COMMIT):
                status, code = 404, "RevisionNotFound"
            elif status == 200 and listed:
                sizes = {key: len(value) for key, value in files.items()}
                about = {"type": "file", "oid": COMMIT}
                all_files = [
                    {"rfilename": x, "path": x, "size": n, **about} for x, n in sizes.items()
                ]
                whole = {"id": repository, "sha": COMMIT, "siblings": all_files}
                body = json.dumps(all_files if rest[:1] == ["tree"] else whole).encode()
            elif status == 200 and file not in files:
                status, code = 404, "EntryNotFound"
            elif status == 200:
                body = files[file]
            self.send_response(status)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{zlib.crc32(body):x}"')
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            return body

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    _set_client(monkeypatch, found.cache, f"http://127.0.0.1:{server.server_port}")
    yield found
    if hasattr(library, "close_session"):
        library.close_session()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def unreachable(tmp_path, monkeypatch) -> Path:
    """A cache beside a hub that does not answer."""
    _set_client(monkeypatch, tmp_path / "cache", "http://127.0.0.1:9")
    return tmp_path / "cache"


def _set_client(monkeypatch: pytest.MonkeyPatch, cache: Path, endpoint: str) -> None:
    """Point the library, which reads its settings when it is imported, at a cache and a hub."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)


def in_cache(cache: Path, repository: str, *, commit: str = COMMIT, ref: str = "main") -> Path:
    """The folder of a commit in a cache, with a config.json, made without the library."""
    root = cache / f"models--{repository.replace('/', '--')}"
    folder = root / "snapshots" / commit
    folder.mkdir(parents=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / ref).write_text(commit)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def test_other_paths_come_back_as_they_are(online):
    for name in ("nowhere", "a/config.json", "a/b.gguf", "a/b/c", "/a/b", "../b", "a/", "a b/c"):
        assert model_folder(name) == Path(name)
        with pytest.raises(InputError, match="`revision=v1`"):
            model_folder(name, revision="v1")
    assert online.asked == []


def test_folders_of_an_adapter_or_of_models_are_named(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="merge_and_unload"):
        model_folder(tmp_path)
    for file in ("model.gguf", "config.json"):
        (tmp_path / file[:5]).mkdir()
        (tmp_path / file[:5] / file).touch()
        with pytest.raises(InputError, match=file[:5]):
            check_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")  # merged
    assert model_folder(tmp_path) == tmp_path
    check_model_folder(tmp_path)


def test_the_cache_comes_first(command, unreachable):
    folder = in_cache(unreachable, "Qwen/Qwen3-8B")
    older = in_cache(unreachable, "Qwen/Qwen3-8B", commit=OLDER, ref="v1")
    assert model_folder("Qwen/Qwen3-8B") == folder
    assert model_folder("Qwen/Qwen3-8B", revision="v1") == older
    assert model_folder("Qwen/Qwen3-8B", revision=OLDER) == older
    with pytest.raises(InputError, match="cannot be downloaded"):
        model_folder("Qwen/Qwen3-8B", revision="v2")
    options = RopeOptions(config="Qwen/Qwen3-8B", revision="v1")
    local = local_model_options(options, "config", weights=False)
    assert local == RopeOptions(config=str(older))
    assert local_model_options(local, "config") == local
    with pytest.raises(InputError, match="`config`"):
        local_model_options(RopeOptions(revision="v1"), "config")
    code, out, _ = command("rope", "Qwen/Qwen3-8B", "--length", "4k", "--json")
    assert (code, json.loads(out)["length"]) == (0, 4096)


@pytest.mark.parametrize("kind", ["config", "whole", "sharded"])
def test_files_of_a_model_are_fetched_once_and_no_code(online, kind):
    wanted = {"config.json": json.dumps(LLAMA).encode(), "generation_config.json": b"{}"}
    weights = {"model.safetensors": b"1"}
    if kind == "sharded":
        index = {"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}
        weights = {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
        weights["model.safetensors.index.json"] = json.dumps(index).encode()
    weights["vocab.txt"] = b"[UNK]"
    code = {"evil.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"}
    online.files["a/b"] = wanted | weights | code
    folder = model_folder("a/b")  # leaves the weights out, so that the cache has a part
    if kind != "config":
        wanted |= weights
        folder = model_folder("a/b", weights=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == wanted
    assert model_name(folder) == "b"
    assert not any("evil" in line or "pytorch" in line for line in online.asked)
    count = len(online.asked)
    assert model_folder("a/b", weights=kind != "config") == folder
    assert len(online.asked) == count


def test_weights_larger_than_the_memory_are_not_fetched(online, monkeypatch):
    monkeypatch.setattr("jaxpe._core.memory.available_bytes", lambda: 10**6)
    online.files["a/b"] = {"config.json": b"{}", "model-1.safetensors": bytes(2 * 10**6)}
    with pytest.raises(InputError, match="memory"):
        model_folder("a/b", weights=True)
    assert not any("/resolve/" in line for line in online.asked)


def test_a_gguf_file_of_a_repository(online):
    online.files["a/b"] = {"b-Q4.gguf": b"GGUF", "b-Q8.gguf": b"GGUF8"}
    found = model_folder("a/b/b-Q8.gguf", weights=True)
    assert (found.name, found.read_bytes()) == ("b-Q8.gguf", b"GGUF8")
    assert not any("Q4" in line for line in online.asked)
    for name, word in (("a/b", "a/b/FILE.gguf"), ("a/b/c.gguf", "no c.gguf")):
        with pytest.raises(InputError, match=word):
            model_folder(name)


REFUSALS = {
    (403, "GatedRepo"): "needs a token",
    (403, ""): "needs a token",
    (401, "RepoNotFound"): "no public repository",
    (404, "RevisionNotFound"): "`revision=v1`",
    (418, ""): "cannot be downloaded",
}


def test_refusals_say_what_to_do(online):
    for refusal, word in REFUSALS.items():
        online.refusals["a/b"] = refusal
        with pytest.raises(InputError, match=word):
            model_folder("a/b", revision="v1")


def test_without_network_one_line_names_the_download(command, unreachable, monkeypatch):
    for offline, reason in ((False, "onnect"), (True, "HF_HUB_OFFLINE is set")):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        code, out, err = command("rope", "Qwen/Qwen3-8B")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert reason in err
        assert "run `hf download Qwen/Qwen3-8B config.json`" in err
    assert not unreachable.exists()


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match="hub"):
        model_folder("a/b")
    assert model_folder("nowhere") == Path("nowhere")


def test_a_run_keeps_the_folder_of_a_commit(online, tmp_path):
    model = with_tokenizer("tiny_bert", tmp_path / "model")
    online.files["tiny/bert"] = {file.name: file.read_bytes() for file in model.iterdir()}
    config = TrainConfig(task="mlm", pretrained="tiny/bert", revision="main")
    local = local_model_options(config, "pretrained")
    assert local.pretrained.endswith(f"models--tiny--bert/snapshots/{COMMIT}")
    assert local_model_options(local, "pretrained") == local
