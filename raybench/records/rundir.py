"""The run directory: where everything of a run lies, under names that are safe on any disk.

    manifest.json  journal.jsonl  service.json
    arms/<arm>/                                            facts, gpus, inventory, process, launch log
    parts/<arm>/<workload>/<level>/attempt-<n>/<name>.arrows
    parts/gpu/<host>.arrows   parts/server/<arm>.arrows    `~2` behind the name of a second one
    parts/gpu/<host>.<anchor>.arrows                       taken in from `raybench monitor`
    parts/server_log/<arm>.arrows                          lines of the engine's own log
    points.parquet requests.parquet gpu.parquet server.parquet worker.parquet searches.json artifacts.json
    report.md report.html report.json   `.zh` before the ending in Chinese; plots/ where asked for

Used by the coordinator (create), the recorder (paths) and by merge and report (read).
"""

from __future__ import annotations

import re
import tempfile
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from raybench.errors import RunDirectoryError
from raybench.records.files import sync_folder, writing
from raybench.records.strict_json import read_json

SUFFIX = ".arrows"
_SESSION = re.compile(r"~([2-9]|[1-9][0-9]+)$")
_ATTEMPT = re.compile(r"attempt-([1-9][0-9]*)")
#: Folders beside those of the arms; an arm of that name is written otherwise.
_OWN_FOLDERS = frozenset({"gpu", "server", "server_log"})


def safe_name(name: str) -> str:
    """One file name for any text, percent-encoded where needed; `plain_name` turns it back.

    Letters, digits and `_ - +` stay, and a dot unless it leads: no separators, no hidden files, no `..`.
    """
    assert name, "a name is never empty"
    encoded = quote(name, safe="+").replace("~", "%7E")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def plain_name(file_name: str) -> str:
    """The name that `safe_name` encoded."""
    return unquote(file_name)


def make_writable(runs_dir: Path) -> None:
    """Make the folder of run directories. Raises RunDirectoryError now rather than after minutes of work."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=runs_dir):
            pass
    except OSError as error:
        raise RunDirectoryError(
            f"{runs_dir}: cannot be written ({error.strerror}); name another folder with --runs-dir"
        ) from None


class RunDirectory:
    """Paths of one run. Makes nothing but what `create` and `arm` say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = path / "manifest.json"
        self.journal = path / "journal.jsonl"
        self.service_json = path / "service.json"
        self.arms = path / "arms"
        self.parts = path / "parts"
        self.points_parquet = path / "points.parquet"
        self.requests_parquet = path / "requests.parquet"
        self.gpu_parquet = path / "gpu.parquet"
        self.server_parquet = path / "server.parquet"
        self.worker_parquet = path / "worker.parquet"
        self.searches_json = path / "searches.json"
        self.probes = path / "probes"
        self.artifacts_json = path / "artifacts.json"
        self.report_md = path / "report.md"
        self.report_html = path / "report.html"

    def create(self) -> None:
        """Make the directory. Raises RunDirectoryError if anything is there: a run is written once."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if any(self.path.iterdir()):
            raise RunDirectoryError(
                f"{self.path}: not empty; go on with that run by --resume, or name another directory"
            )
        with writing(self.path):
            self.arms.mkdir()
            self.parts.mkdir()
            sync_folder(self.path)
            sync_folder(self.path.parent)

    def require(self) -> None:
        """Raises RunDirectoryError unless a run was begun here."""
        if not self.path.is_dir():
            raise RunDirectoryError(f"{self.path}: no such directory")
        if not self.manifest.is_file():
            raise RunDirectoryError(f"{self.path}: not a run directory: it has no {self.manifest.name}")

    def read_manifest(self) -> dict[str, Any]:
        """The manifest. Raises RunDirectoryError unless a run was begun here."""
        self.require()
        manifest = read_json(self.manifest)
        if not isinstance(manifest, dict):
            raise RunDirectoryError(f"{self.manifest}: not a manifest")
        return manifest

    def arm(self, arm: str) -> Path:
        """Folder of an arm's facts and logs; made if missing."""
        return _made(self.arms / safe_name(arm))

    def request_logs(self, arm: str) -> list[Path]:
        """Copies of the log in which the arm's server tells of its requests, one an invocation."""
        return sorted((self.arms / safe_name(arm) / "request-log").glob("*.jsonl"))

    def next_request_log(self, arm: str) -> Path:
        """Where the copy of this invocation goes; its folder is made if missing."""
        folder = _made(self.arm(arm) / "request-log")
        return folder / f"{len(self.request_logs(arm)) + 1:03d}.jsonl"

    def attempt(self, point_id: str, attempt: int) -> Path:
        """Folder of the parts of one attempt (1-based) of a point `arm/workload/level`."""
        assert attempt >= 1, f"attempts count from 1, not {attempt}"
        return self._point(point_id) / f"attempt-{attempt}"

    def part(self, point_id: str, attempt: int, name: str) -> Path:
        """File of one writer in one attempt; `name` is the worker's, or worker and kind."""
        return self.attempt(point_id, attempt) / (safe_name(name) + SUFFIX)

    def gpu_part(self, host: str, session: int = 1) -> Path:
        """File of one host's GPU samples. A resumed run has a new session, since parts are written once."""
        return self.parts / "gpu" / _session_name(host, session)

    def monitor_part(self, host: str, anchor_unix_ns: int) -> Path:
        """File of the samples that a monitor outside the cluster took, by what no other monitor shares."""
        return self.parts / "gpu" / (safe_name(f"{host}.{anchor_unix_ns}") + SUFFIX)

    def next_server_part(self, arm: str) -> Path:
        """File for the scrapes of one arm's engine from now on."""
        return _next_part(self.parts / "server", arm)

    def next_server_log_part(self, arm: str) -> Path:
        """File for what the log of one arm's engine tells from now on."""
        return _next_part(self.parts / "server_log", arm)

    def relative(self, path: Path) -> str:
        """The name of a path of this run for `PartFiles`, the same on every host."""
        return path.relative_to(self.path).as_posix()

    def points(self) -> list[str]:
        """Ids of the points that have parts, in alphabetical order."""
        levels = (level for level in self.parts.glob("*/*/*") if level.is_dir())
        own = (level for level in levels if level.parts[-3] not in _OWN_FOLDERS)
        return sorted("/".join(map(plain_name, level.parts[-3:])) for level in own)

    def attempts(self, point_id: str) -> list[int]:
        """Numbers of the attempts that left parts, ascending."""
        matches = (_ATTEMPT.fullmatch(folder.name) for folder in self._point(point_id).glob("attempt-*"))
        return sorted(int(match[1]) for match in matches if match)

    def parts_of(self, point_id: str, attempt: int) -> list[Path]:
        """Files of one attempt, sorted by name."""
        return sorted(self.attempt(point_id, attempt).glob(f"*{SUFFIX}"))

    def gpu_parts(self) -> list[Path]:
        return sorted((self.parts / "gpu").glob(f"*{SUFFIX}"))

    def server_parts(self) -> list[Path]:
        return sorted((self.parts / "server").glob(f"*{SUFFIX}"))

    def server_log_parts(self) -> list[Path]:
        return sorted((self.parts / "server_log").glob(f"*{SUFFIX}"))

    def next_gpu_session(self) -> int:
        """1 for a new run; after that, one more than any session that left a part of GPU samples."""
        return max(map(_session_of, self.gpu_parts()), default=0) + 1

    def _point(self, point_id: str) -> Path:
        names = point_id.split("/")
        assert len(names) == 3, f"a point id reads arm/workload/level, not {point_id!r}"
        arm, workload, level = map(safe_name, names)
        return self.parts / (f"%{ord(arm[0]):02X}{arm[1:]}" if arm in _OWN_FOLDERS else arm) / workload / level


def _made(folder: Path) -> Path:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _session_name(name: str, session: int) -> str:
    assert session >= 1, f"sessions count from 1, not {session}"
    return safe_name(name) + (f"~{session}" if session > 1 else "") + SUFFIX


def _next_part(folder: Path, name: str) -> Path:
    """The first of that name that is not there: parts are written once."""
    paths = (folder / _session_name(name, session) for session in count(1))
    return next(path for path in paths if not path.exists())


def _session_of(part: Path) -> int:
    match = _SESSION.search(part.name.removesuffix(SUFFIX))
    return int(match[1]) if match else 1
