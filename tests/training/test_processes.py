"""Options by which processes join one run."""

import pytest

from jaxpe._core.errors import InputError
from jaxpe.training.processes import start_processes


@pytest.mark.parametrize(
    ("coordinator", "processes", "process", "message"),
    [
        ("here", 2, 0, "`coordinator` is here; pass host"),
        ("a:0", 2, 0, "`coordinator` is a:0; pass host"),
        ("a:1e5", 2, 0, "`coordinator` is a:1e5; pass"),
        (None, 2, None, "`coordinator`, `processes` and `process` go together"),
        ("localhost:1", None, 0, "go together"),
        ("localhost:1", 2, 2, "pass at most 1"),
        ("localhost:1", 2, -1, "pass at least 0"),
        ("localhost:1", 0, 0, "pass at least 1"),
    ],
)
def test_processes_refused(coordinator, processes, process, message):
    with pytest.raises(InputError, match=message):
        start_processes(coordinator, processes=processes, process=process)
