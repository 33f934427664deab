"""What does not fit is refused before it is asked for."""

import pytest

from jaxpe import _memory
from jaxpe._errors import InputError


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(_memory, "_GROUPS", (tmp_path,))
    before = _memory.available_bytes()
    assert before is not None
    assert before > 10**6
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert _memory.available_bytes() == 2_000_000
    with pytest.raises(InputError, match="the table"):
        _memory.check_bytes(2_000_001, what="the table", remedy="pass less")
    _memory.check_bytes(2_000_000, what="the table", remedy="pass less")
    (tmp_path / "memory.max").write_text("max\n")
    assert (_memory.available_bytes() or 0) > 10**6
