"""The command line that starts the simulated engine."""

import json
import sys
from pathlib import Path

from raybench.deploy.guard import PARENT_PID
from raybench.deploy.own_servers import sim_command
from raybench.scenario.sim_block import Sim

SIM = Sim(profile="tp2pp4", time_compression=50.0, port=4711, kv_pool_tokens=4096)


def options_of(command: list[str]) -> dict[str, str]:
    assert command[:3] == [sys.executable, "-m", "raybench.sim"]
    return dict(zip(command[3::2], command[4::2], strict=True))


def test_the_command_carries_the_whole_configuration() -> None:
    options = options_of(sim_command(SIM, "127.0.0.1", Path("engine.log"), None))
    assert Sim.model_validate_json(options.pop("--sim-json")) == SIM
    assert options == {
        "--host": "127.0.0.1",
        "--port": "4711",
        "--log-file": "engine.log",
        "--parent-pid": PARENT_PID,
    }


def test_preloaded_text_is_described_in_json() -> None:
    preload = {"corpus": {"path": "ids.npy"}, "windows": 9}
    options = options_of(sim_command(SIM, "127.0.0.1", Path("engine.log"), preload))
    assert json.loads(options["--preload-json"]) == preload
