"""What tests of the data share."""

import pytest

from jaxpe._core.progress import Silent


class Shown(Silent):
    """Progress that keeps the descriptions and totals it was given."""

    def __init__(self):
        self.bars = []

    def track(self, items, description, *, total=None):
        self.bars.append((description, total))
        return items


@pytest.fixture
def shown():
    return Shown()
