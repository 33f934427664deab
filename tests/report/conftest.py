"""Reports written once, for the tests that only look."""

from pathlib import Path

import pytest

from jaxpe.report.writing import write
from tests.report import factory


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = factory.analysis(letters=factory.letters([*"ACGT"]))
    return write(result, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(factory.hostile(), tmp_path_factory.mktemp("hostile"))
