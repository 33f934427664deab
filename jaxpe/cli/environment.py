"""Environment variables that JAX, XLA, OpenBLAS and Matplotlib read when they are imported."""

import os
import sys
from importlib import import_module

from jaxpe._core.files import cache_directory, cache_problem

# Halves the time that XLA takes to compile small programs, which then run a fifth longer.
_QUICK_COMPILATION = {
    "xla_backend_optimization_level": "1",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}
_TESTED_JAXLIB = ("0.9.", "0.10.")  # XLA aborts on an unknown flag


def set_environment(*, small_programs: bool) -> None:
    """Set environment variables for a command; values set by the user stay.

    Args:
        small_programs: whether programs take longer to compile than to run.
    """
    # With more LAPACK threads than processors, an eigendecomposition of 128 positions takes 100
    # times as long: idle threads of OpenBLAS spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max((os.cpu_count() or 1) // 4, 1)))
    # XLA warns of layouts that it changes at a cost; errors are still shown.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Figures are files. A backend in the user's environment may be one that Matplotlib lacks.
    os.environ["MPLBACKEND"] = "agg"
    if small_programs and import_module("jaxlib").__version__.startswith(_TESTED_JAXLIB):
        flags = os.environ.get("XLA_FLAGS", "")
        added = [f"--{name}={x}" for name, x in _QUICK_COMPILATION.items() if name not in flags]
        os.environ["XLA_FLAGS"] = " ".join([flags, *added]).strip()
    if problem := cache_problem():
        print(f"jaxpe: {problem}", file=sys.stderr)
    folder = cache_directory()
    if folder is not None and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
