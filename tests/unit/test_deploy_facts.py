"""What a host says of itself, and what it does not."""

import getpass
import json
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


def test_host_facts_name_no_person_host_or_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever way they are asked for."""
    for variable in ("USER", "LOGNAME"):
        monkeypatch.setenv(variable, "somebody")
    monkeypatch.setenv("HOME", "/somewhere/somebody")
    for asked in ("socket.gethostname", "socket.getfqdn", "platform.node", "getpass.getuser"):
        monkeypatch.setattr(asked, lambda *_: "somebody")
    text = json.dumps(host_facts())
    assert "somebody" not in text
    assert not [word for word in (getpass.getuser(), str(Path.home()), str(Path.cwd())) if word in text]


def test_a_package_that_is_not_installed_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybench.deploy.facts.PACKAGES", ("raybench-nothing-of-this-name",))
    assert host_facts()["packages"] == {"raybench-nothing-of-this-name": None}
