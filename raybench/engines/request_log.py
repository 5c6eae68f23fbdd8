"""The log in which a server tells of its requests, one JSON object a line: ninfer's `--request-log-jsonl`.

Pure; read by the merge. Versions 2 (upstream) and 21 (forks) of the schema have what is read here under the same
names; a field that is not there is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raybench.engines.loose_json import JsonObject, float_of, int_of, object_of, parse_object, str_of

ARTIFACT_TYPE = "ninfer_serve_request_log"


@dataclass(frozen=True)
class LoggedRequest:
    """One request as its server saw it. request_id counts from the server's start; seconds are its own clock's."""

    instance: str
    request_id: str
    ended_unix_ms: int
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    ttft_s: float | None
    total_s: float | None
    draft_tokens: int | None
    accepted_tokens: int | None
    verify_rounds: int | None


def read_request_log(lines: Iterable[bytes]) -> Iterator[LoggedRequest]:
    """The requests that the log says are done, each once; a torn last line and other events are left out."""
    seen: set[tuple[str, str]] = set()
    for line in lines:
        entry = parse_object(line)
        if entry is None or entry.get("artifact_type") != ARTIFACT_TYPE or entry.get("event") != "request_done":
            continue
        request = _request(entry)
        if request is not None and (request.instance, request.request_id) not in seen:
            seen.add((request.instance, request.request_id))
            yield request


def _request(entry: JsonObject) -> LoggedRequest | None:
    asked, result = object_of(entry.get("request")), object_of(entry.get("result"))
    seconds, drafts = object_of(entry.get("timings_seconds")), object_of(entry.get("speculative"))
    identity, ended = asked.get("request_id"), entry.get("timestamp_unix_ms")
    if not isinstance(identity, int | str) or not isinstance(ended, int):
        return None
    before = [float_of(seconds.get(name)) for name in ("prepare", "vision", "prefill")]
    ttft_s = float_of(seconds.get("ttft"))
    if ttft_s is None and before[2] is not None:
        ttft_s = sum(one or 0.0 for one in before)
    return LoggedRequest(
        instance=str_of(entry.get("server_instance_id")) or "",
        request_id=str(identity),
        ended_unix_ms=ended,
        finish_reason=str_of(result.get("finish_reason")),
        input_tokens=int_of(result.get("prompt_tokens")),
        output_tokens=int_of(result.get("completion_tokens")),
        cached_tokens=int_of(result.get("prefix_cache_hit_tokens")),
        queue_s=float_of(object_of(entry.get("engine_timing")).get("queue_wait_seconds")),
        prefill_s=before[2],
        decode_s=float_of(seconds.get("decode")),
        ttft_s=ttft_s,
        total_s=float_of(seconds.get("total")),
        draft_tokens=int_of(drafts.get("drafted_tokens")),
        accepted_tokens=int_of(drafts.get("accepted_tokens")),
        verify_rounds=int_of(drafts.get("rounds")),
    )
