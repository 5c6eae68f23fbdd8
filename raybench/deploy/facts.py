"""What a host of a run says of itself, for the manifest. Runs on every host; no personal data."""

from __future__ import annotations

import os
import platform
import resource
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from raybench.deploy.ports import local_port_range

#: Distributions whose version may change a measured number.
PACKAGES = ("raybench", "ray", "aiohttp", "uvloop", "orjson", "numpy", "pyarrow", "pydantic", "nvidia-ml-py")


def host_facts(*, ray_version: str | None = None) -> dict[str, object]:
    """This host as far as it can bear on a number; no names of users, hosts or folders.

    Memory in bytes. None = the system does not say.
    """
    files_soft, files_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "ray": ray_version,
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": _cpu_model(),
        "cpus_logical": os.cpu_count(),
        "cpus_physical": psutil.cpu_count(logical=False),
        "cpus_usable": _usable_cpus(),
        "memory_total_bytes": psutil.virtual_memory().total,
        "open_files_max": {"soft": _limit(files_soft), "hard": _limit(files_hard)},
        "local_ports": local_port_range(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _usable_cpus() -> int | None:
    """CPUs that this process may run on, which a container may restrict."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, None)
