"""A worker in torch on the CPU, under a Python that need not have JAX: one round a line of input.

Its argument is JSON with the sizes and the number of threads. It builds what it measures, warms up,
and prints one JSON line with versions and sizes, or with the error of what torch cannot run. Then
for each line "go" of its input it prints the seconds of a round; anything else ends it.
"""

import json
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch  # pyrefly: ignore[missing-import]


def serve(build: Callable[[Any], Callable[[], float]], *modules: ModuleType) -> None:
    """Answer with seconds of the function that `build` makes from the sizes."""
    sizes = SimpleNamespace(**json.loads(sys.argv[1]))
    torch.set_num_threads(sizes.threads)
    about = {module.__name__: module.__version__ for module in (torch, *modules)} | vars(sizes)
    try:
        run = build(sizes)
        run()
    except (NotImplementedError, RuntimeError) as error:
        print(json.dumps(about | {"error": str(error).splitlines()[0]}), flush=True)
        return
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            return
        print(json.dumps(run()), flush=True)
