"""A hostile configuration: float64, strict dtype promotion, no rank promotion, types checked."""

import contextlib
import ctypes
import functools
import gc
import inspect
import os
from pathlib import Path

import beartype
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)  # which nobody reads in a program


def _checking_quickly(check):
    """Check types as `jaxtyping.jaxtyped` does, in less time.

    Arguments are checked once for each call, where jaxtyping does so before and after it; shapes
    cost more than the rest, so only functions that have some are given a context. Functions inside
    others are made in every call of the outer one, and the checks with them, which takes a
    millisecond: these are made once.
    """
    plain = beartype.beartype(conf=beartype.BeartypeConf(violation_type=jaxtyping.TypeCheckError))
    seen = set()

    def decorate(made, typechecker):
        if not inspect.isfunction(made) or inspect.isgeneratorfunction(made):
            return check(made, typechecker=typechecker)
        if "<locals>" in made.__qualname__:
            if made.__code__ in seen:
                return made
            seen.add(made.__code__)
        annotations = list(made.__annotations__.values())
        if any(isinstance(annotation, str) for annotation in annotations):
            return check(made, typechecker=typechecker)  # names that only type checkers import
        checked = plain(made)
        shaped = any("jaxtyping." in repr(annotation) for annotation in annotations)

        @functools.wraps(made)
        def run(*args, **options):
            if jaxtyping.config.jaxtyping_disable:
                return made(*args, **options)
            if not shaped:
                return checked(*args, **options)
            with check("context"):  # of the axes that have had a size
                return checked(*args, **options)

        return run

    return lambda *, typechecker: functools.partial(decorate, typechecker=typechecker)


# The import hook writes `@jaxtyping.jaxtyped(typechecker=...)` at every function.
jaxtyping.jaxtyped = _checking_quickly(jaxtyping.jaxtyped)
jaxtyping.install_import_hook("jaxpe", "beartype.beartype")

# Commands in processes of their own are compiled quickly; here `_compile_quickly` decides, also in
# workers, which inherit the variable.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
jax.config.update("jax_disable_most_optimizations", False)


# What imports and collection make stays: collections meanwhile are a sixth of their time.
gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Leave what is imported out of garbage collections, and have fewer of them."""
    collected = yield
    gc.freeze()
    gc.set_threshold(20_000, 200, 20)  # what lives longer, programs, is mostly kept
    gc.enable()
    return collected


# Most tests wait for the compiler more than for what it compiles. These do not; and the optimised
# programs are run by the notebooks and the experiments, too.
OPTIMISED = ("test_published",)
# Programs stay in memory, several GB of them over the whole suite; what is shared between files is
# in the persistent cache, too.
MOST_RESIDENT = 5 * 2**30


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly(request):
    """Compile with few optimisations."""
    from tests.compilation import quick_compilation  # not before the import hook

    optimised = request.path.stem in OPTIMISED
    with contextlib.nullcontext() if optimised else quick_compilation():
        yield
    if _resident() > MOST_RESIDENT:
        jax.clear_caches()
        gc.collect()
        _return_memory()


def _return_memory() -> None:
    """Give the system what is freed; else the next module would begin with a clearing, too."""
    with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def _names_of_examples(doctest_namespace):
    """Docstring examples read as in a session that imported NumPy, JAX, geometry and encodings."""
    import jaxpe

    doctest_namespace.update(jax=jax, jnp=jnp, np=np, jaxpe=jaxpe)
    for package in (jaxpe.geometry, jaxpe.encodings):
        doctest_namespace.update({name: getattr(package, name) for name in package.__all__})


@pytest.fixture(autouse=True)
def _own_catalogue(monkeypatch):
    """Encodings that a test or an example registers are gone after it."""
    from jaxpe.encodings import registry

    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))


@pytest.fixture
def data_dir() -> Path:
    """The directory with the real corpora, as users set it; the test skips where it is absent."""
    setting = os.environ.get("JAXPE_DATA_DIR")
    if not setting:
        pytest.skip("JAXPE_DATA_DIR is not set: no real corpora here")
    return Path(setting)
