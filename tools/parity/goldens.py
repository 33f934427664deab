"""What makers of reference values share: the folder, versions of packages, and the formats.

Reference values lie in `tests/parity`. Each maker runs by hand from the root of the project, as
`python -m tools.parity.NAME`, in an environment that has the packages it names.
"""

import functools
import gzip
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "parity"


@functools.cache
def families() -> dict[str, Any]:
    """Tables of the types of models that this library has rules for."""
    return tomllib.loads((ROOT / "jaxpe" / "plans" / "families.toml").read_text("utf-8"))


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of packages by name."""
    return {package: version(package) for package in packages}


def write_arrays(path: Path, arrays: Mapping[str, Any], *packages: str) -> None:
    """Write arrays to a .npz file, with the versions of the packages that computed them."""
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **{**arrays, "versions": np.array(json.dumps(versions(*packages)))})


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a .npz file, without the versions."""
    return {name: array for name, array in np.load(path).items() if name != "versions"}


def write_compressed(path: Path, result: Mapping[str, Any], *, sort: bool = True) -> None:
    """Write JSON to a .json.gz file, the same bytes for the same values."""
    data = json.dumps(result, sort_keys=sort, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{len(data):,} bytes, {path.stat().st_size:,} compressed")


def write_cases(path: Path, cases: Sequence[Any], *packages: str) -> None:
    """Write cases to a .json file, one a line, with the versions of the packages."""
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    known = json.dumps(versions(*packages))
    path.write_text(f'{{"versions": {known}, "cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases of {len({case['type'] for case in cases})} types")
