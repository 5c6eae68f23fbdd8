"""What an arm is made of, as found on the target's host: artifacts by content, versions, image, git HEAD.

Runs on the target's host. Blocks, for minutes where large models are hashed for the first time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from raybench.deploy.commands import run_command
from raybench.deploy.digests import DigestCache, digest_input
from raybench.errors import ConfigError, ConfigProblem
from raybench.records.redact import redact_text
from raybench.scenario.launch import Inventory

COMMAND_TIMEOUT_S = 60.0


def take_inventory(inventory: Inventory, base: Path, cache: DigestCache) -> dict[str, object]:
    """Relative paths start at `base`. Raises ConfigError for what is not there or does not tell its version."""
    return {
        "artifacts": [
            {"as_given": path, **digest_input(base / Path(path).expanduser(), cache)}
            for path in inventory.artifacts
        ],
        "image": inventory.image,
        "git": None if inventory.git is None else _working_copy(base / Path(inventory.git).expanduser()),
        "versions": {name: _version(name, command, base) for name, command in inventory.versions.items()},
    }


def _working_copy(path: Path) -> dict[str, object]:
    """HEAD and whether anything differs from it."""

    def git(*arguments: str) -> str:
        try:
            ran = subprocess.run(
                ["git", "-C", str(path), *arguments], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(
                "inventory", ConfigProblem(f"git cannot be asked: {error}", value=str(path))
            ) from None
        if ran.returncode != 0:
            raise ConfigError("inventory", ConfigProblem(f"git: {ran.stderr.strip()}", value=str(path)))
        return ran.stdout.strip()

    return {"path": str(path), "head": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain"))}


def _version(name: str, command: str, base: Path) -> str:
    ran = run_command(command, cwd=base, timeout_s=COMMAND_TIMEOUT_S)
    if ran.failure is not None:
        raise ConfigError("inventory", ConfigProblem(ran.failure, path=f"versions.{name}"))
    return redact_text(ran.output.strip())
