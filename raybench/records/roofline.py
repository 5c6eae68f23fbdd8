"""What a client host can carry before its own stamps go wrong, as `raybench roofline` measured it.

One JSON file a host, `<runs>/.roofline/<host>.json`, beside the run directories: written by the command,
read by `plan` and by the coordinator, which copies what it used into the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from raybench.errors import RunDirectoryError
from raybench.records.rundir import safe_name
from raybench.records.strict_json import read_json, write_json

FOLDER = ".roofline"
#: Above this share of a roofline a host is called busy; above 1 its numbers do not count.
BUSY_SHARE = 0.7
#: Above this share of the host's CPU for other work, a measurement says less about the host than about that work.
OTHERS_SHARE_MAX = 0.1


@dataclass(frozen=True)
class Step:
    """One load of the probe. kind: `tokens_per_s` or `streams`, which of the two it drives up.

    tokens_per_s: read by the client while all streams were under way. Errors in ms: the client's stamps
    minus the null server's, both of one clock. CPU: of one core (worker, server: the busiest of each), and
    of all cores (servers, the whole node, and others: neither workers nor servers). limited_by: None = carried.
    """

    kind: str
    streams: int
    gap_ms: int
    workers: int
    tokens_per_s: float | None
    ttft_error_ms_p50: float | None
    ttft_error_ms_p99: float | None
    stamp_error_ms_p99: float | None
    gap_error_ms_p99: float | None
    worker_cpu_share: float | None
    server_cpu_share: float | None
    servers_node_share: float | None
    node_cpu_share: float | None
    others_node_share: float | None
    limited_by: str | None


@dataclass(frozen=True)
class Roofline:
    """The most that a host carried, and what stopped it. None = not even the first step was carried.

    client: which of raybench's clients (`load/client.py`). workers: the most that were used.
    others_node_share: the most CPU that other work took in any step, of all cores; None = not known.
    The null servers ran on the same cores, so all of it is a lower bound.
    """

    host: str
    client: str
    cores: int
    servers: int
    stamp_error_ms_max: float
    streams: int | None
    streams_limited_by: str
    tokens_per_s: float | None
    tokens_limited_by: str
    others_node_share: float | None
    raybench_version: str
    measured_unix_ns: int
    steps: tuple[Step, ...]

    @property
    def workers(self) -> int:
        return max((step.workers for step in self.steps), default=0)

    def best(self, kind: str) -> Step | None:
        """The step that made the number: the largest of its kind that was carried."""
        carried = [step for step in self.steps if step.kind == kind and step.limited_by is None]
        return max(carried, key=lambda step: step.streams, default=None)

    @property
    def disturbed(self) -> bool:
        """Other work on the host kept it from showing what it can carry."""
        return self.others_node_share is not None and self.others_node_share > OTHERS_SHARE_MAX

    def shares(self, streams: int | None, tokens_per_s: float | None) -> dict[str, float]:
        """How much of it a load is, by what is known on both sides."""
        shares = {}
        if self.streams and streams is not None:
            shares["streams"] = streams / self.streams
        if self.tokens_per_s and tokens_per_s is not None:
            shares["tokens_per_s"] = tokens_per_s / self.tokens_per_s
        return shares

    def told(self) -> str:
        """`8,192 streams, 41,000 tokens/s`."""
        streams = "streams not known" if self.streams is None else f"{self.streams:,} streams"
        tokens = "tokens/s not known" if self.tokens_per_s is None else f"{self.tokens_per_s:,.0f} tokens/s"
        return f"{streams}, {tokens}"

    def as_record(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of_record(cls, record: Any, source: str) -> Roofline:
        """Raises RunDirectoryError when the record is not one of this version of raybench."""
        try:
            return cls(**{**record, "steps": tuple(Step(**step) for step in record["steps"])})
        except (TypeError, KeyError) as error:
            raise RunDirectoryError(
                f"{source}: not a roofline of this version of raybench ({error}); measure again with"
                " `raybench roofline`, or remove the file"
            ) from None


def store_roofline(runs_dir: Path, roofline: Roofline) -> Path:
    """Replace what is stored of this host; the file. Raises RunDirectoryError when it cannot be written."""
    path = _file_of(runs_dir, roofline.host)
    write_json(path, roofline.as_record())
    return path


def stored_rooflines(runs_dir: Path, hosts: Iterable[str] | None = None) -> Mapping[str, Roofline]:
    """By host: of these hosts, or of all. Raises RunDirectoryError for a damaged file."""
    if hosts is None:
        paths = sorted((runs_dir / FOLDER).glob("*.json"))
    else:
        paths = [_file_of(runs_dir, host) for host in hosts]
    found = [Roofline.of_record(read_json(path), str(path)) for path in paths if path.is_file()]
    return {roofline.host: roofline for roofline in found}


def _file_of(runs_dir: Path, host: str) -> Path:
    return runs_dir / FOLDER / f"{safe_name(host)}.json"
