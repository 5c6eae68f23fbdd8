"""Facts of deployments and hosts, and the limits that follow from them."""

import getpass
import json
import socket
from pathlib import Path

import pytest

from raybench.deploy.facts import (
    host_facts,
    write_gpu_inventory,
)
from raybench.monitors.gpu import GpuDevice, GpuStatus
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json


def test_the_inventory_gathers_the_devices_of_all_hosts(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    device = GpuDevice("GPU-a", 0, "NVIDIA Test", 80, "580.1")
    write_gpu_inventory(run, "a", "one", GpuStatus(True, devices=(device,), warnings=("w",)))
    path = write_gpu_inventory(run, "a", "two", GpuStatus(False, "nvmlInit: Driver Not Loaded"))
    assert read_json(path) == {
        "one": {
            "available": True,
            "reason": None,
            "devices": [
                {
                    "uuid": "GPU-a",
                    "index": 0,
                    "name": "NVIDIA Test",
                    "memory_total_bytes": 80,
                    "driver_version": "580.1",
                    "parent_uuid": None,
                }
            ],
            "warnings": ["w"],
        },
        "two": {"available": False, "reason": "nvmlInit: Driver Not Loaded", "devices": [], "warnings": []},
    }


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
