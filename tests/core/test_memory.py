"""What does not fit is refused before it is asked for."""

from types import SimpleNamespace

import jax
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


@pytest.mark.parametrize(("second", "total"), [(5, 8), (0, None)])
def test_memory_of_devices_is_known_where_all_say_it(second, total, monkeypatch):
    devices = [SimpleNamespace(memory_stats=lambda x=x: {"bytes_limit": x}) for x in (3, second)]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert memory.device_bytes() == total
    devices[0].memory_stats = lambda: None
    assert memory.device_bytes() is None
