"""The tables of what was measured on: facts and settings of the arms, their processes and what these are made of,
active limits, GPU memory. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raybench.analysis.conditions import VOLATILE, flat
from raybench.analysis.points import has_numbers
from raybench.report import numbers
from raybench.report.document import Row, Table
from raybench.report.points import Point, level_name
from raybench.report.source import ArmFacts, Source
from raybench.report.tables import verdict
from raybench.report.text import Text


def active_limit_table(source: Source, text: Text) -> Table:
    """How many requests of each workload can run at once on each arm, and what bounds them."""
    rows = []
    for workload, points in source.workloads.items():
        cells = [_active_limit([p for p in points if p["arm"] == arm], source, text) for arm in source.arms]
        rows.append(Row((workload, *cells)))
    return Table((text.workload, *source.arms), rows)


def _active_limit(points: Sequence[Point], source: Source, text: Text) -> str:
    if not points:
        return numbers.UNKNOWN
    if all(point["verdict"] == "skipped" for point in points):
        return verdict(points[0], text)
    limit = points[0]["active_limit"]
    arm = source.by_arm[points[0]["arm"]]
    running = (arm.limits or arm.facts).get("max_running_requests")
    if limit is None or running is None:
        return numbers.count(limit)
    return f"{limit} ({text.limit_by_running if limit == running else text.limit_by_pool})"


def fact_table(source: Source, text: Text) -> Table:
    """What each engine says of itself, one column an arm; facts that no engine gives are left out."""
    arms = list(source.by_arm.values())
    rows = []
    told = [text.simulated_value.format(**sim) if (sim := simulation(arm.settings)) else None for arm in arms]
    if any(told):
        rows.append(Row((text.simulated_fact, *(value or text.no for value in told))))
    devices = [_devices(arm.gpus, text) for arm in arms]
    if any(devices):
        rows.append(Row((text.gpus, *(described or numbers.UNKNOWN for described in devices))))
    for name, label in text.engine_facts.items():
        rows += _fact_row(label, [arm.facts.get(name) for arm in arms], text)
    labelled: dict[str, list[object]] = {}
    for name, label in text.engine_settings.items():
        # Two engines name one setting differently: the first that tells fills the line.
        before = labelled.get(label, [None] * len(arms))
        labelled[label] = [
            setting(arm.facts, name) if known is None else known for known, arm in zip(before, arms, strict=True)
        ]
    for label, values in labelled.items():
        rows += _fact_row(label, values, text)
    named = {"raw", *text.engine_facts, *text.engine_settings, *VOLATILE}
    for name in dict.fromkeys(name for arm in arms for name in arm.facts if name not in named):
        rows += _fact_row(name.replace("_", " "), [arm.facts.get(name) for arm in arms], text)
    return Table((text.fact, *source.arms), rows)


def _fact_row(label: str, values: Sequence[object], text: Text) -> list[Row]:
    if all(value is None for value in values):
        return []
    return [Row((label, *(_fact(value, text) for value in values)))]


def simulation(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Profile and time compression of a simulated arm; None for a real one."""
    sim = settings.get("sim")
    if not sim:
        return None
    return {"profile": sim.get("profile", numbers.UNKNOWN), "compression": sim.get("time_compression", 1)}


def setting(facts: Mapping[str, Any], name: str) -> object:
    """A start-up setting as the engine tells it, wherever in its own words it stands; None if it does not."""
    raw = facts.get("raw") or {}
    for place in (facts, raw, *(value for value in raw.values() if isinstance(value, Mapping))):
        value = place.get(name)
        if value is not None and not isinstance(value, Mapping | list):
            return value
    return None


def differing_table(source: Source, text: Text) -> Table:
    """Start-up settings that are not alike on all arms and in no line of the facts, by the engine's own names.

    A setting that an arm does not tell is unknown, and listed when another arm tells it.
    """
    told = [dict(flat(arm.facts.get("raw") or {})) for arm in source.by_arm.values()]
    names = dict.fromkeys(name for settings in told for name in settings)
    rows = []
    for name in names:
        values = [settings.get(name) for settings in told]
        leaf = name.rpartition(".")[2]
        if len(set(values)) > 1 and leaf not in text.engine_settings:
            rows.append(Row((name, *(value or numbers.UNKNOWN for value in values))))
    return Table((text.setting, *source.arms), rows)


def launch_commands(source: Source) -> list[tuple[str, str]]:
    """(arm, how it was launched): by raybench itself, or as its engine says, of those that say."""
    told = [(arm, _launch_command(facts)) for arm, facts in source.by_arm.items()]
    return [(arm, str(command)) for arm, command in told if command]


def _launch_command(arm: ArmFacts) -> object:
    if arm.settings.get("launch") and arm.processes:
        return shlex.join(arm.processes[-1]["argv"])
    return setting(arm.facts, "launch_command")


def _fact(value: object, text: Text) -> str:
    if isinstance(value, bool):
        return text.yes if value else text.no
    if isinstance(value, int):
        return numbers.count(value)
    return numbers.UNKNOWN if value is None else str(value)


def _devices(inventory: Mapping[str, Any], text: Text) -> str:
    """`8 x NVIDIA X (83.6 GiB), driver 580.1` of each host; empty when there is no inventory."""
    told = []
    for host in inventory.values():
        if not host.get("available"):
            told.append(text.gpu_unavailable.format(reason=host.get("reason")))
            continue
        kinds: dict[str, int] = {}
        for device in host.get("devices") or []:
            driver = f", driver {device['driver_version']}" if device.get("driver_version") else ""
            kind = f"{device.get('name') or 'GPU'} ({numbers.memory(device.get('memory_total_bytes'))}){driver}"
            kinds[kind] = kinds.get(kind, 0) + 1
        told += [f"{number} x {kind}" for kind, number in kinds.items()]
    return "; ".join(told)


def process_table(source: Source, text: Text) -> Table:
    """A row for each process that was started for an arm, in the order of their starts."""
    words = text.deployments
    rows = [
        Row(_process(arm, one, words.reasons)) for arm, kept in source.by_arm.items() for one in kept.processes
    ]
    return Table(words.process_columns, rows, right=frozenset({1, 2}))


def _process(arm: str, record: Mapping[str, Any], reasons: Mapping[str, str]) -> tuple[str, ...]:
    reason = reasons.get(record["reason"], numbers.UNKNOWN)
    code = "" if record["exit_code"] is None else f" ({record['exit_code']})"
    evidence = "" if record["evidence"] is None else f": {record['evidence']}"
    return (
        arm,
        numbers.seconds(record["load_s"]),
        numbers.seconds(record["process_s"]),
        f"{reason}{code}{evidence}",
    )


def made_of_table(source: Source, text: Text) -> Table:
    """Artifacts by content, images, working copies and versions, arm by arm."""
    rows = [Row((arm, *entry)) for arm, kept in source.by_arm.items() for entry in _entries(kept.inventory)]
    return Table(text.deployments.ledger_columns, rows)


def _entries(kept: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for artifact in kept.get("artifacts", []):
        yield artifact["as_given"], f"{artifact['sha256']} ({artifact['size_bytes']:,} B)"
    if kept.get("image") is not None:
        yield "image", kept["image"]
    if kept.get("git") is not None:
        yield f"git {kept['git']['path']}", kept["git"]["head"] + (" + changes" if kept["git"]["changed"] else "")
    yield from kept.get("versions", {}).items()


def vram_table(source: Source, text: Text) -> Table:
    """GPU memory of each arm and device over its accepted points."""
    rows = []
    for arm in source.arms:
        devices: dict[tuple[str, str], list[tuple[Point, dict[str, Any]]]] = {}
        for point in source.points:
            if point["arm"] == arm and has_numbers(point):
                for gpu in point["gpus"]:
                    devices.setdefault((gpu["host"], gpu["gpu_uuid"]), []).append((point, gpu))
        rows += [_device_row(arm, seen) for seen in devices.values()]
    return Table(text.vram_columns, [row for row in rows if row is not None], right=frozenset(range(2, 7)))


def _device_row(arm: str, seen: Sequence[tuple[Point, dict[str, Any]]]) -> Row | None:
    known = [(point, gpu) for point, gpu in seen if gpu["peak_bytes"] is not None]
    if not known:
        return None
    at, highest = max(known, key=lambda pair: pair[1]["peak_bytes"])
    samples = sum(gpu["samples"] for _, gpu in known)
    mean = sum(gpu["mean_bytes"] * gpu["samples"] for _, gpu in known) / samples
    idle = min((gpu["idle_bytes"] for _, gpu in known if gpu["idle_bytes"] is not None), default=None)
    headroom = min(gpu["headroom_min_bytes"] for _, gpu in known)
    index = highest["gpu_index"] if highest["gpu_index"] is not None else highest["gpu_uuid"]
    cells = (
        arm,
        f"{highest['host']} {index}",
        numbers.memory(highest["memory_total_bytes"]),
        numbers.memory(idle),
        numbers.memory(round(mean)),
        numbers.memory(highest["peak_bytes"]),
        numbers.memory(headroom),
        f"{at['workload']} {level_name(at)}",
    )
    values = {2: highest["memory_total_bytes"], 3: idle, 4: mean, 5: highest["peak_bytes"], 6: headroom}
    return Row(cells, values=values, point=at.get("index"))
