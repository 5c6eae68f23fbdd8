"""Free ports are not those that the kernel gives to connections."""

import socket
from pathlib import Path

import pytest

from raybench.deploy import ports
from raybench.deploy.ports import free_ports, local_port_range


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's own word on its range."""
    path = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "_RANGE", path)
    return path


def test_the_range_is_what_the_system_says_or_unknown(told: Path) -> None:
    assert local_port_range() is None
    told.write_text("32768\t60999\n")
    assert local_port_range() == [32768, 60999]
    told.write_text("nothing of the kind")
    assert local_port_range() is None


def test_free_ports_differ_and_lie_outside_the_range(told: Path) -> None:
    told.write_text("20500 65500\n")
    found = free_ports(8)
    assert len(set(found)) == 8
    assert set(found) <= {*range(20000, 20500), *range(65501, 65536)}


def test_a_port_that_somebody_has_is_not_free(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        taken = int(somebody.getsockname()[1])
        monkeypatch.setattr(ports, "_FIRST", taken)
        told.write_text(f"{taken + 1} 65535\n")
        assert taken not in free_ports(2)


def test_a_range_that_leaves_no_other_port_gives_of_its_own(told: Path) -> None:
    told.write_text("1024 65535\n")
    assert len(set(free_ports(3))) == 3
