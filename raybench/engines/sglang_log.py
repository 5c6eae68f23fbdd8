"""SGLang's own log, 0.4 to 0.5.23: prefill batches, retractions and flushes, in all their shapes. Pure.

Fields come, go and change place between versions, so they are read by name (case O-P5). Which ranks print
differs as well: the lines keep their rank, and `analysis.server_log` drops the twins.
"""

from __future__ import annotations

import re

from raybench.engines.contract import LogLine

#: `[2026-01-01 00:00:01.123 DP0 PP1 TP0]`: a part only where its size is above one.
_HEAD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?((?: [A-Z][A-Z_]*\d+)*)\] ")
_TAG = re.compile(r"([A-Z][A-Z_]*?)(\d+)")
#: `Prefill batch.` up to 0.5.3, `Prefill batch,` from 0.5.6 on, perhaps with an iteration in between.
_PREFILL = re.compile(r"Prefill batch\b[^#]*(?=#new-seq)")
_NEW_REQUESTS = re.compile(r"#new-seq: (\d+)")
_NEW_TOKENS = re.compile(r"#new-token: (\d+)")
_CACHED_TOKENS = re.compile(r"#cached-token: (\d+)")
_TOLD_RATE = re.compile(r"\bcache hit rate: ([\d.]+)%")
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")
_FLUSHED, _NOT_FLUSHED = "Cache flushed successfully!", "Cache not flushed because"


def read_log_line(line: str) -> LogLine | None:
    """What one line tells; None when it is about something else or not complete."""
    head = _HEAD.search(line)
    if head is None:
        return None
    rank, said = _rank(head[1]), line[head.end() :]
    if _PREFILL.match(said):
        requests, new, cached = (_number(field, said) for field in (_NEW_REQUESTS, _NEW_TOKENS, _CACHED_TOKENS))
        if requests is None or new is None or cached is None:
            return None
        told = _TOLD_RATE.search(said)
        return LogLine("prefill", *rank, requests, new, cached, None if told is None else float(told[1]) / 100)
    retracted = _number(_RETRACTED, said)
    if retracted is not None:
        return LogLine("retraction", *rank, retracted)
    if said.startswith(_FLUSHED):
        return LogLine("flush", *rank)
    return LogLine("flush_refused", *rank) if said.startswith(_NOT_FLUSHED) else None


def _rank(tags: str) -> tuple[int | None, int, str]:
    """(group, stage, twins). Each data-parallel group has its own requests; all other tags tell twins apart."""
    ranks = {name: int(number) for name, number in _TAG.findall(tags)}
    group = ranks.pop("DP", None)
    stage = ranks.pop("PP", 0)
    return group, stage, " ".join(f"{name}{number}" for name, number in sorted(ranks.items()))


def _number(field: re.Pattern[str], text: str) -> int | None:
    found = field.search(text)
    return None if found is None else int(found[1])
