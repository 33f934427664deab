"""What does not fit is refused before it is asked for."""

import pytest

from jaxpe._core import memory
from jaxpe._core.errors import InputError


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CGROUPS", (tmp_path,))
    before = memory.available_bytes()
    assert before is not None
    assert before > 10**6
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert memory.available_bytes() == 2_000_000
    with pytest.raises(InputError, match="the table"):
        memory.check_bytes(2_000_001, what="the table", remedy="pass less")
    memory.check_bytes(2_000_000, what="the table", remedy="pass less")
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory.available_bytes() or 0) > 10**6
