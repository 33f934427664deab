"""Names on the hub: its cache as it lies on a disk, and a server that speaks its addresses."""

import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxpe._core import hub
from jaxpe._core.errors import InputError, MissingExtraError
from jaxpe._core.hub import check_model_folder, local_model_options, model_folder, model_name
from jaxpe.plans import RopeOptions, explain_rope
from tests.analysis.inspect.folders import text, with_tokenizer

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

    def add(self, repository: str, folder: Path | None = None, **files: bytes) -> None:
        found = {} if folder is None else {f.name: f.read_bytes() for f in folder.iterdir()}
        self.files[repository] = found | files


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
            revision = rest[1] if rest else "main"
            status, code = found.refusals.get(repository, (200, ""))
            if status == 200 and repository not in found.files:
                status, code = 401, "RepoNotFound"
            elif status == 200 and revision not in ("main", COMMIT):
                status, code = 404, "RevisionNotFound"
            elif status == 200 and not listed and file not in found.files[repository]:
                status, code = 404, "EntryNotFound"
            body = b""
            if status == 200 and listed:
                sizes = {key: len(value) for key, value in found.files[repository].items()}
                about = {"type": "file", "oid": COMMIT}
                found_files = [
                    {"rfilename": x, "path": x, "size": size, **about} for x, size in sizes.items()
                ]
                whole = {"id": repository, "sha": COMMIT, "siblings": found_files}
                body = json.dumps(found_files if rest[:1] == ["tree"] else whole).encode()
            elif status == 200:
                body = found.files[repository][file]
            self.send_response(status)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(body)))
            if status == 200:
                self.send_header("ETag", f'"{hash(body):x}"'.replace("-", ""))
            else:
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


@pytest.mark.parametrize(
    "name",
    [
        "nowhere",
        "a/config.json",
        "a/b.gguf",
        "a/b/c",
        "/a/b",
        "./a/b",
        "../b",
        "a/",
        "a b/c",
    ],
)
def test_other_paths_come_back_as_they_are(online, name):
    assert model_folder(name) == Path(name)
    assert online.asked == []
    with pytest.raises(InputError, match="`revision=v1` is for names on the hub"):
        model_folder(name, revision="v1")


def test_a_folder_of_an_adapter_alone_is_named_for_what_it_is(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"adapter_config.json.*merge_and_unload"):
        model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")  # merged
    assert model_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("file", ["config.json", "model.gguf"])
def test_a_folder_of_models_names_them(tmp_path, file):
    (tmp_path / "mine").mkdir()
    check_model_folder(tmp_path)
    (tmp_path / "mine" / file).touch()
    with pytest.raises(InputError, match=r"is a folder of models: pass one of .*mine"):
        check_model_folder(tmp_path)
    with pytest.raises(InputError, match="is a folder of models"):
        explain_rope(RopeOptions(config=str(tmp_path)))
    (tmp_path / file).touch()
    check_model_folder(tmp_path)


def test_the_cache_comes_first(unreachable):
    folder = in_cache(unreachable, "Qwen/Qwen3-8B")
    older = in_cache(unreachable, "Qwen/Qwen3-8B", commit=OLDER, ref="v1")
    assert model_folder("Qwen/Qwen3-8B") == folder
    assert model_folder("Qwen/Qwen3-8B", revision="v1") == older
    assert model_folder("Qwen/Qwen3-8B", revision=OLDER) == older
    with pytest.raises(InputError, match="cannot be downloaded"):
        model_folder("Qwen/Qwen3-8B", revision="v2")


def test_config_and_generation_config_are_fetched_and_nothing_else(online):
    code = {"modeling.py": b"raise SystemExit", "model.safetensors": b"weights"}
    config, generation = json.dumps(LLAMA).encode(), b"{}"
    online.add("a/b", **{"config.json": config, "generation_config.json": generation}, **code)
    folder = model_folder("a/b")
    assert {file.name for file in folder.iterdir()} == {"config.json", "generation_config.json"}
    assert (folder / "config.json").read_bytes() == config
    assert model_name(folder) == "b"
    count = len(online.asked)
    assert model_folder("a/b") == folder
    assert len(online.asked) == count


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_and_a_tokenizer_are_fetched_and_no_code(online, sharded):
    names = {"model.safetensors": b"1"}
    index = {"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}
    if sharded:
        names = {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
        names["model.safetensors.index.json"] = json.dumps(index).encode()
    names |= {"config.json": b"{}", "vocab.txt": b"[UNK]"}
    code = {"evil.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"}
    online.add("a/b", **names, **code)
    model_folder("a/b")  # leaves the weights out, so that the cache has a part
    folder = model_folder("a/b", weights=True)
    assert {file.name for file in folder.iterdir()} == names.keys()
    assert not any("evil" in line or "pytorch" in line for line in online.asked)
    count = len(online.asked)
    assert model_folder("a/b", weights=True) == folder
    assert len(online.asked) == count


def test_weights_larger_than_the_memory_are_not_fetched(online, monkeypatch):
    monkeypatch.setattr("jaxpe._core.memory.available_bytes", lambda: 10**6)
    online.add("a/b", **{"config.json": b"{}", "model-1.safetensors": bytes(2 * 10**6)})
    with pytest.raises(InputError, match=r"a/b needs .* GB of memory"):
        model_folder("a/b", weights=True)
    assert not any("/resolve/" in line for line in online.asked)


def test_a_gguf_file_of_a_repository(online):
    online.add("a/b", **{"b-Q4.gguf": b"GGUF", "b-Q8.gguf": b"GGUF8"})
    found = model_folder("a/b/b-Q8.gguf", weights=True)
    assert (found.name, found.read_bytes()) == ("b-Q8.gguf", b"GGUF8")
    assert not any("Q4" in line for line in online.asked)
    with pytest.raises(InputError, match=r"a/b has no config.json: .* as a/b/FILE.gguf"):
        model_folder("a/b")
    with pytest.raises(InputError, match=r"a/b has no c\.gguf"):
        model_folder("a/b/c.gguf")


REFUSALS = {
    (403, "GatedRepo"): "a/b is gated and needs a token",
    (401, "GatedRepo"): "a/b is gated and needs a token",
    (403, ""): "a/b is gated and needs a token",
    (401, "RepoNotFound"): "and the hub has no public repository",
    (404, "RepoNotFound"): "and the hub has no public repository",
    (404, "RevisionNotFound"): "a/b has no branch, tag or commit of `revision=v1`",
    (418, ""): "cannot be downloaded",
}


@pytest.mark.parametrize(("refusal", "said"), REFUSALS.items(), ids=str)
def test_refusals_say_what_to_do(online, refusal, said):
    online.refusals["a/b"] = refusal
    with pytest.raises(InputError) as caught:
        model_folder("a/b", revision="v1")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_network_one_line_names_the_download(command, unreachable, monkeypatch):
    for offline, reason in ((False, "onnect"), (True, "HF_HUB_OFFLINE is set")):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        code, out, err = command("rope", "Qwen/Qwen3-8B")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert reason in err
        assert "run `hf download Qwen/Qwen3-8B config.json`" in err
        with pytest.raises(InputError, match=r"run `hf download Qwen/Qwen3-8B` at revision v1"):
            model_folder("Qwen/Qwen3-8B", revision="v1", weights=True)
    assert not unreachable.exists()


def test_the_extra_is_named(monkeypatch):
    def require(module, *, extra):
        raise MissingExtraError(f"{module} comes with {extra!r}")

    monkeypatch.setattr(hub, "require", require)
    with pytest.raises(MissingExtraError, match=r"a/b is not a local file .*_hub comes with 'hub'"):
        model_folder("a/b")
    assert model_folder("nowhere") == Path("nowhere")


def test_options_get_a_local_path(unreachable):
    folder = in_cache(unreachable, "a/b", ref="v1")
    options = local_model_options(RopeOptions(config="a/b", revision="v1"), "config", weights=False)
    assert options == RopeOptions(config=str(folder))
    assert local_model_options(options, "config") == options
    with pytest.raises(InputError, match=r"`revision=v1`.* pass `config`"):
        local_model_options(RopeOptions(revision="v1"), "config")


def test_rope_reads_the_cache_of_a_machine_without_network(tmp_path):
    """In a process of its own, by the environment."""
    in_cache(tmp_path, "Qwen/Qwen3-8B")
    words = ("rope", "Qwen/Qwen3-8B", "--length", "4k", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "jaxpe", *words],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model_type"], found["length"]) == ("llama", 4096)


@pytest.fixture
def bert(online, tmp_path):
    """A repository with a tiny BERT; returns its name."""
    online.add("tiny/bert", with_tokenizer("tiny_bert", tmp_path / "model"))
    return "tiny/bert"


def test_a_run_keeps_the_folder_of_a_commit(command, bert, tmp_path):
    lines, out = text(tmp_path / "text.txt"), tmp_path / "run"
    words = ("train", lines, "--task", "mlm", "--length", 8, "--pretrained", bert, "--out", out)
    words += ("--steps", 1, "--probe-at", "--revision", "main")
    code, _, err = command(*words)
    assert code == 0, err
    saved = json.loads((out / "config.json").read_text())
    assert saved["pretrained"].endswith(f"models--tiny--bert/snapshots/{COMMIT}")
    assert "revision" not in saved
    code, _, err = command(*words, "--resume")
    assert code == 0, err
