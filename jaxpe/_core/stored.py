"""Compiled programs kept in files: a second process neither traces nor compiles them.

JAX's compilation cache saves compiling alone; to look a program up it must be traced and lowered,
which takes as long as the programs of a small corpus run. Here the key of a program is made from
the name of its function, the contents of this package and the shapes of the arguments.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import math
import os
import pickle
import platform
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

from jaxpe._core.threads import SETTINGS

PACKAGE = __name__.partition(".")[0]
LIMIT = 2**29  # bytes of all files; those not used for longest go first

_VERSIONS = ("jax", "jaxlib", "numpy")
# Of a process, beside those that a thread may have of its own.
_OTHER_SETTINGS = (
    "jax_default_prng_impl",
    "jax_disable_most_optimizations",
    "jax_threefry_partitionable",
)
_ENVIRONMENT = ("JAX_", "XLA_", "LIBTPU_")

# Options of XLA for a CPU (measured by experiments/benchmarks/compile_options.py). Programs with
# arguments of fewer bytes than `SMALL` are compiled with `_QUICK`, in half of the time; they run a
# fifth longer, which is much less. Those that are marked as brief have `_BRIEF`: a quarter of the
# time of `_QUICK`, and runs that take several times as long.
SMALL = 2**24
TINY = 2**16
_QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
    "xla_cpu_parallel_codegen_split_count": 1,
}
_BRIEF = _QUICK | {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}

_lock = threading.Lock()
_folder: Path | None = None
_eager: Any = None  # the state of JAX where nothing is being traced


def keep_programs(folder: Path | None) -> None:
    """Keep programs in this folder from now on, at most `LIMIT` bytes of them; None: none.

    Called where nothing is being traced.
    """
    global _folder, _eager
    _folder, _eager = folder, get_opaque_trace_state()


def keeping() -> bool:
    """Whether programs are kept."""
    return _folder is not None


class UndescribedError(TypeError):
    """A value of which another process could not tell whether its own is the same."""


@dataclasses.dataclass(frozen=True)
class Hole:
    """The place of an array among plain values and functions."""

    number: int


def without_arrays(value: Any) -> tuple[Any, list[Any]]:
    """The value with `Hole`s in place of its arrays, and the arrays."""
    arrays: list[Any] = []

    def apart(value: Any) -> Any:
        if isinstance(value, jax.Array | np.ndarray):
            arrays.append(value)
            return Hole(len(arrays) - 1)
        return _mapped(apart, value)

    return apart(value), arrays


def with_arrays(value: Any, arrays: Any) -> Any:
    """Inverse of `without_arrays`: the value with these arrays in its places."""
    if isinstance(value, Hole):
        return arrays[value.number]
    return _mapped(lambda part: with_arrays(part, arrays), value)


def _mapped(f: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: f(part) for name, part in value.items()}
    if isinstance(value, functools.partial):
        return functools.partial(f(value.func), *map(f, value.args), **f(value.keywords))
    if isinstance(value, tuple):
        return getattr(type(value), "_make", tuple)(map(f, value))
    return value


class Programs:
    """The programs of one function by what they are made of, in memory and in the folder."""

    def __init__(self, function: Callable[..., Any], *, brief: int = 0) -> None:
        self._function, self._brief = function, brief
        self._ready: dict[str, tuple[threading.Lock, list[Callable[..., Any]]]] = {}
        self._results: dict[str, tuple[threading.Lock, list[Any]]] = {}

    def find(
        self, function: Callable[..., Any], values: Any, /, *args: Any, **kwargs: Any
    ) -> Callable[..., Any] | None:
        """The compiled program; None where it is not one to keep.

        Args:
            function: function of arrays that the program is made of, where none is kept.
            values: plain values and functions that it is made with.
            args, kwargs: arguments of the program, pytrees of arrays and numbers.
        """
        arguments = args, kwargs
        path = self._path(values, arguments)
        if path is None:
            return None
        with _lock:
            lock, found = self._ready.setdefault(path.name, (threading.Lock(), []))
        with lock:
            if not found:
                found.append(_made(path, function, arguments, self._options(arguments)))
        return functools.partial(_call, found[0])

    def result(
        self, function: Callable[..., Any], values: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Result of the program for these arguments, in NumPy, kept as programs are; else None.

        Args:
            function, values, args, kwargs: as of `find`; results are told by numbers of arguments.
        """
        path = self._path(values, (args, kwargs))
        if path is None:
            return None
        numbers = jax.tree.leaves(jax.device_get(_without_keys((args, kwargs))))
        contents = b"".join(np.asarray(number).tobytes() for number in numbers)
        path = path.with_name(f"{path.name}-{hashlib.sha256(contents).hexdigest()[:32]}")
        with _lock:
            lock, found = self._results.setdefault(path.name, (threading.Lock(), []))
        with lock:
            if not found and (known := _content(path)) is not None:
                found.append(pickle.loads(known))
            if found:
                return found[0]
            program = self.find(function, values, *args, **kwargs)
            result = jax.device_get(program(*args, **kwargs))  # pyrefly: ignore
            if _bytes_of(result) < SMALL:
                found.append(result)
                with contextlib.suppress(Exception):  # what cannot be kept is computed again
                    _write(path, pickle.dumps(result))
        return result

    def _path(self, values: Any, arguments: Any) -> Path | None:
        """The file of a program; None where it is not one to keep."""
        if _folder is None or get_opaque_trace_state() != _eager or not _ordinary(arguments):
            return None  # a part of another program, even where all of its arguments are known
        try:
            described = describe(self._function), describe(values), _shapes(arguments)
        except UndescribedError:
            return None
        key = hashlib.sha256(repr((_surroundings(), described)).encode()).hexdigest()[:32]
        return _folder / f"{self._function.__name__}-{key}"

    def _options(self, arguments: Any) -> dict[str, Any]:
        """Options of XLA for arguments of this size."""
        size = _bytes_of(arguments)
        if size < self._brief:
            return _BRIEF
        return _QUICK if size < SMALL else {}


class _KeyData(NamedTuple):
    """Numbers of a PRNG key: a key that a file gives is not of the type of JAX's own keys."""

    numbers: Any


def _without_keys(tree: Any) -> Any:
    """The same with `_KeyData` in place of keys; of arrays, or of their shapes."""

    def plain(leaf: Any) -> Any:
        if not _is_key(leaf):
            return leaf
        shape_alone = isinstance(leaf, jax.ShapeDtypeStruct)
        numbers = jax.random.key_data
        return _KeyData(jax.eval_shape(numbers, leaf) if shape_alone else numbers(leaf))

    return jax.tree.map(plain, tree)


def _with_keys(tree: Any) -> Any:
    """Inverse of `_without_keys`, of arrays."""

    def keys(leaf: Any) -> Any:
        return jax.random.wrap_key_data(leaf.numbers) if isinstance(leaf, _KeyData) else leaf

    return jax.tree.map(keys, tree, is_leaf=lambda part: isinstance(part, _KeyData))


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _of_default_kind(key: jax.Array) -> bool:
    return jax.random.key_impl(key) == jax.config.jax_default_prng_impl  # pyrefly: ignore


def _call(program: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return _with_keys(program(*_without_keys(args), **_without_keys(kwargs)))


def _made(
    path: Path, function: Callable[..., Any], arguments: Any, options: dict[str, Any]
) -> Callable[..., Any]:
    """The program in a file, which is written where it is not there.

    A program that came out of JAX's own cache on disk cannot be written: read again, it lacks its
    functions. So it is compiled under a name that the cache does not know.
    """
    if (kept := _read(path)) is not None:
        return kept
    if not threading.main_thread().is_alive():
        raise SystemExit  # in a background thread: the process ends, and nobody will run it
    _watch_cache()
    _cache.hit = False
    name = path.name.replace("-", "_")
    with _counted_as_compiling():
        program = _compiled(_lowered(function, name, arguments), options)
        if _cache.hit:
            name = f"{name}_{secrets.token_hex(4)}"
            program = _compiled(_lowered(function, name, arguments), options)
    with contextlib.suppress(Exception):  # what cannot be kept is compiled again
        _write(path, _serialized(program))
    return program


def _lowered(function: Callable[..., Any], name: str, arguments: Any) -> Any:
    """The program of this name of a function of arrays, whose keys are numbers."""

    def without_keys(*args: Any, **kwargs: Any) -> Any:
        return _without_keys(function(*_with_keys(args), **_with_keys(kwargs)))

    without_keys.__name__ = without_keys.__qualname__ = name
    args, kwargs = _without_keys(arguments)
    return jax.jit(without_keys).lower(*args, **kwargs)


def _compiled(lowered: Any, options: dict[str, Any]) -> Any:
    """Compiled with these options, but for those that XLA_FLAGS sets or this XLA does not have."""
    flags = os.environ.get("XLA_FLAGS", "")
    options = {name: value for name, value in options.items() if name not in flags}
    if options and jax.default_backend() == "cpu":
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            if "compile option" not in str(error):
                raise
    return lowered.compile()


_under_way: list[None] = []


@contextlib.contextmanager
def _counted_as_compiling() -> Iterator[None]:
    _under_way.append(None)
    try:
        yield
    finally:
        _under_way.pop()


def compiling() -> bool:
    """Whether a program that is kept is being compiled."""
    return bool(_under_way)


_cache = threading.local()


@functools.cache
def _watch_cache() -> None:
    def listen(event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            _cache.hit = True

    jax.monitoring.register_event_listener(listen)


def _read(path: Path) -> Callable[..., Any] | None:
    from jax.experimental.serialize_executable import deserialize_and_load

    if (content := _content(path)) is None:
        return None
    try:
        if b"lapack" in content:  # brings half a second of SciPy
            _find_lapack()
        return deserialize_and_load(*pickle.loads(content))
    except Exception:  # whatever is wrong with a file, the program can be compiled
        return None


def _content(path: Path) -> bytes | None:
    """Content of a file that was written; None where it is not there or is not whole."""
    try:
        content = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return content[32:] if hashlib.sha256(content[32:]).digest() == content[:32] else None


@functools.cache
def _find_lapack() -> None:
    """Make jaxlib find LAPACK, as it does on a CPU when the first program with it is lowered."""
    jax.jit(jnp.linalg.eigvalsh).lower(jax.ShapeDtypeStruct((1, 1), jnp.float32))


def _serialized(program: Any) -> bytes:
    from jax.experimental.serialize_executable import serialize

    return pickle.dumps(serialize(program))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(hashlib.sha256(content).digest() + content)
    os.replace(file.name, path)
    with _lock:
        _forget(path.parent)


def _forget(folder: Path) -> None:
    """Delete the programs not used for longest, until the rest are within the limit."""
    files = [(path, path.stat()) for path in folder.iterdir()]
    files.sort(key=lambda file: file[1].st_mtime, reverse=True)
    total = 0
    for path, known in files:
        total += known.st_size
        if total > LIMIT:
            path.unlink(missing_ok=True)


def _ordinary(arguments: Any) -> bool:
    """Whether a call runs unchanged on the default device."""
    if jax.config.jax_disable_jit or jax.config.jax_debug_nans:  # pyrefly: ignore
        return False
    default = jax.config.jax_default_device or jax.local_devices()[0]  # pyrefly: ignore
    for leaf in jax.tree.leaves(arguments):
        if isinstance(leaf, jax.core.Tracer):
            return False
        if isinstance(leaf, jax.Array) and _is_key(leaf) and not _of_default_kind(leaf):
            return False
        if isinstance(leaf, jax.Array) and leaf.sharding.device_set != {default}:
            return False
    return jax.process_count() == 1


def _bytes_of(arguments: Any) -> int:
    arrays = [leaf for leaf in jax.tree.leaves(arguments) if hasattr(leaf, "dtype")]
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def _shapes(arguments: Any) -> Any:
    leaves, structure = jax.tree.flatten(arguments)
    return _printed(structure), [_shape(leaf) for leaf in leaves]


def _shape(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return leaf.shape, str(leaf.dtype), getattr(leaf, "weak_type", False)
    if isinstance(leaf, bool | int | float | complex):
        return type(leaf).__name__
    raise UndescribedError(type(leaf))


def _installation() -> tuple[Any, ...]:
    """Contents of this package, versions, and the machine."""
    digest = hashlib.sha256()
    for path in sorted(Path(sys.modules[PACKAGE].__file__ or "").parent.rglob("*.py")):
        digest.update(path.read_bytes())
    versions = [importlib.metadata.version(name) for name in _VERSIONS]
    devices = [(device.platform, device.device_kind) for device in jax.local_devices()]
    return digest.hexdigest(), sys.version, versions, devices, platform.machine(), _processor()


def _processor() -> str:
    """Features of the processor: a program compiled for another one may not run on it."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return repr(sorted({line for line in lines if line.startswith(("flags", "model name"))}))
    return platform.processor()


def _surroundings() -> str:
    return _under(tuple(str(getattr(jax.config, name)) for name in SETTINGS))


@functools.cache
def _under(settings: tuple[str, ...]) -> str:
    """A digest of all that decides what a program is, beside the program."""
    others = [str(getattr(jax.config, name, None)) for name in _OTHER_SETTINGS]
    environment = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(_ENVIRONMENT) and "CACHE" not in name
    ]
    known = _installation(), settings, others, environment
    return hashlib.sha256(repr(known).encode()).hexdigest()


def describe(value: Any) -> Any:
    """Plain data that is the same in every process for what means the same to a program.

    Functions are told by where this package defines them and by what they close over. Raises
    `UndescribedError` for other functions, for arrays, and for what is told by its identity.

    >>> describe((1, "a", functools.partial(describe, value=2.0)))[2]
    "('str', 'a')"
    """
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr((type(value).__name__, value))
    if isinstance(value, tuple | list):
        return (_name(type(value)), *map(describe, value))
    if isinstance(value, dict):
        return "dict", *((describe(k), describe(v)) for k, v in value.items())
    if isinstance(value, np.dtype):
        return str(value)
    if isinstance(value, type):
        return _name(value)
    if isinstance(value, functools.partial):
        return "partial", describe(value.func), describe(value.args), describe(value.keywords)
    if dataclasses.is_dataclass(value):
        return _name(type(value)), *(describe(x) for x in _fields(value))
    if isinstance(value, type(jax.tree.structure(0))):
        return _printed(value)
    if callable(value) and _is_defined(value):
        return _name(value)
    if not inspect.isfunction(value) or hasattr(value, "__wrapped__"):
        raise UndescribedError(f"{value!r}")
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    given = describe(cells), describe(value.__defaults__), describe(value.__kwdefaults__)
    return _name(value), value.__code__.co_firstlineno, given


def _is_defined(value: Any) -> bool:
    """Whether the function is the one that its module has under its name."""
    found: Any = sys.modules.get(getattr(value, "__module__", None) or "")
    for name in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is value


def _fields(value: Any) -> Iterator[Any]:
    return (getattr(value, field.name) for field in dataclasses.fields(value))


def _name(value: Any) -> str:
    if value.__module__.partition(".")[0] not in (PACKAGE, "builtins", "jax", "numpy"):
        raise UndescribedError(f"{value!r}")
    return f"{value.__module__}.{value.__qualname__}"


def _printed(structure: Any) -> str:
    printed = str(structure)
    if " at 0x" in printed:
        raise UndescribedError(printed)
    return printed
