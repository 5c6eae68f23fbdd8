#!/usr/bin/env python3
"""Processes that hold GPU memory for `hold_memory.yaml`, and what a run directory says of them.

hold_memory.py hold GB                        holds it until it is killed; SIGTERM is not heard
hold_memory.py container FOLDER GB SECONDS    once FOLDER/run is there, and SECONDS longer than FOLDER/stop
hold_memory.py tell RUN TIMELINE              a table; TIMELINE: lines `unix seconds,MiB in use` of nvidia-smi
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

MIB = 1024**2
POLL_S = 0.05
#: Samples of the timeline whose memory differs by less are told as one.
STEP_MIB = 1024


def take(gigabytes: int) -> object:
    """So much memory of the first GPU, written to."""
    import torch

    held = torch.ones(gigabytes * 1024**3, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    print(f"holds {gigabytes} GB", flush=True)
    return held


def hold(gigabytes: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kept = take(gigabytes)
    while kept is not None:
        signal.pause()


def container(folder: Path, gigabytes: int, seconds: float) -> None:
    wait_for(folder / "run")
    kept = take(gigabytes)
    (folder / "held").touch()
    wait_for(folder / "stop")
    time.sleep(seconds)
    del kept


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_S)


def tell(run: Path, timeline: Path) -> None:
    """What raybench recorded of each arm, and what nvidia-smi saw meanwhile."""
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    order = [event["arm"] for event in events if event["event"] == "arm_launched"]
    records = {arm: json.loads((run / "arms" / arm / "process.json").read_text())[-1] for arm in order}
    columns = ("arm", "free before", "free when ready", "lived", "then held for", "reason", "still held")
    rows = [columns, *((arm, *_cells(record)) for arm, record in records.items())]
    for row in rows:
        print("  ".join(f"{cell:<15}" for cell in row).rstrip())
    moments = _changes(timeline)
    begin = moments[0][0]
    for arm, record in records.items():
        started = record["began_unix_ns"] / 1e9
        moments.append((started, f"{arm}: started"))
        if record["process_s"] is not None:
            moments.append((started + record["process_s"], f"{arm}: its processes have ended"))
    print("\nMiB in use by nvidia-smi, where they changed, and what raybench did:")
    for stamp, what in sorted(moments):
        print(f"{stamp - begin:8.1f} s  {what}")


def _cells(record: dict[str, Any]) -> list[str]:
    sizes = [record[name] for name in ("gpu_free_bytes", "gpu_free_bytes_ready")]
    seconds = [record[name] for name in ("process_s", "gpu_release_s")]
    told = ["unknown" if free is None else f"{min(free.values()) / MIB:,.0f} MiB" for free in sizes]
    told += ["unknown" if one is None else f"{one:.1f} s" for one in seconds]
    return [*told, str(record["reason"]), "; ".join(record["gpu_held"]) or "nothing"]


def _changes(timeline: Path) -> list[tuple[float, str]]:
    """Samples that differ from the last one told."""
    changes: list[tuple[float, str]] = []
    last = -STEP_MIB
    for line in timeline.read_text().splitlines():
        stamp, _, used = line.partition(",")
        if abs(int(used) - last) >= STEP_MIB:
            last = int(used)
            changes.append((float(stamp), f"{last:,}"))
    return changes


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "hold":
        hold(int(words[0]))
    elif what == "container":
        container(Path(words[0]), int(words[1]), float(words[2]))
    else:
        tell(Path(words[0]), Path(words[1]))
