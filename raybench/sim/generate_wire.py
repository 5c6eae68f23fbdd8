"""Bytes of SGLang's `/generate`: events, the plain answer, errors. Key for key as version 0.5.23 sends them.

An event repeats everything so far (or holds only what is new, with `incremental`), so its growing parts
are slices of rendered bytes and the rest is formatted once a stream.
"""

from __future__ import annotations

import orjson

from raybench.sim.clock import VirtualClock
from raybench.sim.faults import Faults
from raybench.sim.request import UNAVAILABLE, Finish, Request
from raybench.sim.tokens import TokenRing

DONE = b"data: [DONE]\n\n"


class GenerateWire:
    """Renders one answer after the other."""

    def __init__(self, ring: TokenRing, clock: VirtualClock, faults: Faults) -> None:
        self._faults = faults
        self._ring = ring
        self._clock = clock

    def event(self, request: Request, begin: int, *, first: bool) -> bytes:
        """The event that shows output tokens [begin, now); `first` marks the first one of the stream."""
        return b"data: %b\n\n" % self.body(request, begin, first=first, plain=False)

    def body(self, request: Request, begin: int = 0, *, first: bool = False, plain: bool = True) -> bytes:
        """The JSON object of an event, or of the whole answer without streaming (`plain`)."""
        finish = request.finish
        if finish is not None and request.first_token_at is None:
            return self._refusal(request, finish)
        start, count = request.ring_start + begin, request.output - begin
        ending = b""
        if finish is not None:
            ending = self._ending(request, plain=plain)
        elif first:
            ending = b',"response_sent_to_client_ts":%.7f' % self._first_token_unix(request)
        spans = b""
        if finish is not None:
            spans = b',"weight_versions":[{"version":"default","start":0,"end":%d}]' % request.output
        return (b'{"text":"%b","output_ids":[%b],"meta_info":{%b%b%b%b%b,"dp_rank":%b%b}}') % (
            self._ring.text_bytes(start, count),
            self._ring.id_bytes(start, count),
            self._opening(request),
            _number(b"completion_tokens", self._faults.told_output(request)),
            _number(b"cached_tokens", self._faults.told_cached(request)),
            spans,
            self._tiers(request),
            b"null" if self._faults.dp_ranks == 1 else b"%d" % request.rank,
            ending,
        )

    def _tiers(self, request: Request) -> bytes:
        """Where the hits were; null without any, left out where no hits are told."""
        told = self._faults.told_cached(request)
        if told is None:
            return b""
        if not told:
            return b',"cached_tokens_details":null'
        return b',"cached_tokens_details":%b' % orjson.dumps(self._faults.told_tiers(request))

    def _opening(self, request: Request) -> bytes:
        assert request.admitted_at is not None
        return (
            b'"id":%b,"finish_reason":%b%b,"weight_version":"default","num_retractions":%d,'
            b'"storage_prefetch_wait":0.0,"storage_staging_wait":0.0,"forward_entry_time":%.7f,'
            b'"prefill_finished_time":%.7f,"queue_time":%.9f,"reasoning_tokens":0'
        ) % (
            orjson.dumps(request.rid),
            _finish_reason(request.finish, request.output),
            _number(b"prompt_tokens", self._faults.told_input(request)),
            request.retractions,
            self._clock.unix(request.admitted_at),
            self._first_token_unix(request),
            self._clock.wall(request.admitted_at - request.arrival),
        )

    def _ending(self, request: Request, *, plain: bool) -> bytes:
        """What only the last event has, with the speculation figures where there was any."""
        assert request.first_token_at is not None
        assert request.finished_at is not None
        wall = self._clock.wall
        decoded_s = wall(request.finished_at - request.first_token_at)
        rate = (request.output - 1) / decoded_s if decoded_s > 0 else 0.0
        received = self._clock.unix(request.arrival)
        sent = self._clock.unix(request.finished_at if plain else request.first_token_at)
        timing: dict[str, object] = {"e2e_latency": wall(request.finished_at - request.arrival)}
        timing |= self._speculation(request)
        timing |= {
            "request_received_ts": received,
            "first_token_latency": wall(request.first_token_at - request.arrival),
            "api_server_dispatch_finish_ts": received,
        }
        if not plain:
            timing["response_sent_to_client_ts"] = sent
        timing |= {
            "request_finished_ts": self._clock.unix(request.finished_at),
            "decode_throughput": rate,
        }
        if plain:
            timing["response_sent_to_client_ts"] = sent
        return b"," + orjson.dumps(timing)[1:-1]

    def _speculation(self, request: Request) -> dict[str, object]:
        if not request.verify_steps:
            return {}
        correct = sum(drafts * steps for drafts, steps in enumerate(request.correct_drafts))
        proposed = (len(request.correct_drafts) - 1) * request.verify_steps
        return {
            "spec_accept_rate": correct / proposed,
            "spec_accept_length": request.accept_length,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": request.verify_steps,
            "spec_correct_drafts_histogram": request.correct_drafts,
        }

    def _refusal(self, request: Request, finish: Finish) -> bytes:
        """A request that ended before it had a token."""
        assert request.finished_at is not None
        return orjson.dumps(
            {
                "text": "",
                "output_ids": [],
                "meta_info": {
                    "id": request.rid,
                    "finish_reason": orjson.Fragment(_finish_reason(finish, 0)),
                    "weight_version": "default",
                    "e2e_latency": self._clock.wall(request.finished_at - request.arrival),
                    "weight_versions": [{"version": "default", "start": 0, "end": 0}],
                    "completion_tokens": 0,
                    "response_sent_to_client_ts": self._clock.unix(request.finished_at),
                },
            }
        )

    def _first_token_unix(self, request: Request) -> float:
        assert request.first_token_at is not None
        return self._clock.unix(request.first_token_at)


def error_event(message: str) -> bytes:
    """A request that was refused before it reached the scheduler, on a stream: HTTP 200 and this event."""
    error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
    return b"data: %b\n\n" % orjson.dumps({"error": error})


def _finish_reason(finish: Finish | None, output: int) -> bytes:
    if finish is None:
        return b"null"
    if finish.kind == "length":
        return b'{"type":"length","length":%d}' % output
    if finish.kind == "stop":
        return b'{"type":"stop","matched":2}'
    if finish.status == UNAVAILABLE:  # as SGLang writes it: in another order, and without a type
        return orjson.dumps({"type": "abort", "status_code": finish.status, "message": finish.message})
    kind = None if finish.status is None else "BadRequestError"
    return orjson.dumps(
        {"type": "abort", "message": finish.message, "status_code": finish.status, "err_type": kind}
    )


def _number(name: bytes, value: int | None) -> bytes:
    """A field behind others; nothing for None."""
    return b"" if value is None else b',"%b":%d' % (name, value)
