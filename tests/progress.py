"""Progress that tests can look at."""

from jaxpe._core.progress import Silent


class Told(Silent):
    """Collects the lines that it is told."""

    def __init__(self, lines: list[str]):
        self.say = lines.append
