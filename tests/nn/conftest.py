"""The compiler is not to try hard: these tests mostly wait for it."""

import pytest

from tests.compilation import quick_compilation


@pytest.fixture(autouse=True, scope="package")
def _compile_quickly():
    with quick_compilation():
        yield
