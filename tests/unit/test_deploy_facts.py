"""Facts of deployments and hosts, and the limits that follow from them."""

import getpass
import json
import socket
from pathlib import Path

import pytest

from raybench.deploy.facts import (
    host_facts,
    limits_from_facts,
    write_arm_facts,
    write_gpu_inventory,
)
from raybench.deploy.redact import REDACTED
from raybench.engines.contract import Facts
from raybench.monitors.gpu import GpuDevice, GpuStatus
from raybench.records.rundir import RunDirectory, read_json
from raybench.scenario.schema import Limits


def test_facts_are_written_without_secrets_whatever_their_maker_left_in(tmp_path: Path) -> None:
    facts = Facts("sglang", version="0.5.23", raw={"api_key": "abc", "launch": "x --api-key from-the-env"})
    path = write_arm_facts(RunDirectory(tmp_path), "a", facts, secrets=["from-the-env"])
    assert path == tmp_path / "arms" / "a" / "facts.json"
    written = read_json(path)
    assert isinstance(written, dict)
    assert written["version"] == "0.5.23"
    assert written["instance"] is None
    assert written["raw"] == {"api_key": REDACTED, "launch": f"x --api-key {REDACTED}"}


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


def test_the_engines_own_word_wins_over_what_was_declared() -> None:
    facts = Facts("sglang", max_running_requests=48, kv_pool_tokens=1_000_000)
    declared = Limits(max_running_requests=64, context_tokens=32_768, reserved_tokens_per_request=8)
    assert limits_from_facts(facts, declared) == Limits(
        max_running_requests=48,
        kv_pool_tokens=1_000_000,
        context_tokens=32_768,
        reserved_tokens_per_request=8,
    )


@pytest.mark.parametrize("silent", [None, 0, -1])
def test_a_number_below_one_is_no_limit(silent: int | None) -> None:
    facts = Facts("vllm", max_running_requests=silent, page_tokens=silent)
    assert limits_from_facts(facts, Limits(max_running_requests=64)) == Limits(max_running_requests=64)


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
