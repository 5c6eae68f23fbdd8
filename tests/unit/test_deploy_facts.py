"""What a host says of itself, and what it does not."""

import getpass
import json
import socket
from pathlib import Path

import pytest

from raybench.deploy.facts import host_facts


def test_host_facts_are_plain_data_with_the_versions_that_matter() -> None:
    facts = host_facts(ray_version="2.60.0")
    assert facts["ray"] == "2.60.0"
    assert json.loads(json.dumps(facts)) == facts
    packages = facts["packages"]
    assert isinstance(packages, dict)
    assert packages["aiohttp"] is not None
    assert isinstance(facts["memory_total_bytes"], int)
    assert facts["memory_total_bytes"] > 2**20


def test_host_facts_name_no_person_host_or_folder() -> None:
    text = json.dumps(host_facts())
    words = {word for word in (getpass.getuser(), socket.gethostname()) if len(word) > 5}
    assert str(Path.home()) == "/" or str(Path.home()) not in text
    assert not any(word in text for word in words)


def test_a_package_that_is_not_installed_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybench.deploy.facts.PACKAGES", ("raybench-nothing-of-this-name",))
    assert host_facts()["packages"] == {"raybench-nothing-of-this-name": None}
