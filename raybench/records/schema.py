"""Arrow schemas of the run directory: the only contract between load, monitors and analysis.

Every schema is fixed and versioned. A column that is missing in an old part reads as null; unknown
columns are kept. Stamps `*_ns` are int64 nanoseconds of CLOCK_MONOTONIC of the host that wrote the
file; the file's metadata (`records/clock.py`) carries that host's wall anchor and its measured
offset to the coordinator.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

SCHEMA_VERSION = 1

_i64, _i32, _f64, _str, _bool = pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.bool_()

#: One row per request, failed ones included. Null means "not known", never zero.
REQUESTS = pa.schema(
    [
        ("point_id", _str),  # arm/workload/c64
        ("attempt", _i32),  # 1-based
        ("phase", _str),  # load | prewarm
        ("worker", _str),
        ("ticket", _i64),  # sequence number of the request in its attempt, 0-based
        ("rid", _str),  # fixed-width id sent to the engine
        ("prompt", _str),  # its name in the prompt set; null where a window of the corpus was sent
        ("window_start", _i64),  # first corpus token sent
        ("window_end", _i64),  # one past the last
        ("tries", _i32),  # HTTP requests that left for this record; 1 unless a stale connection was retried
        ("scheduled_ns", _i64),  # open loop only
        ("asked_ns", _i64),  # the slot was free and the body ready
        ("connected_ns", _i64),  # a connection was obtained
        ("connect_ms", _f64),  # how long the TCP set-up of that connection took, whenever it was
        ("sent_ns", _i64),  # the whole request was handed to the socket
        ("headers_ns", _i64),  # response headers read
        ("first_event_ns", _i64),  # first SSE event of any kind
        ("first_token_ns", _i64),
        ("last_token_ns", _i64),
        ("end_ns", _i64),  # end of the answer, or of the attempt to get one
        ("outcome", _str),  # see Outcome
        ("error_class", _str),  # http_503, timeout_idle, broken_stream, ...; null when ok
        ("error_message", _str),
        ("http_status", _i32),
        ("finish_reason", _str),
        ("done_marker", _bool),  # [DONE] was seen
        ("input_tokens_asked", _i64),
        ("output_tokens_asked", _i64),
        ("input_tokens", _i64),  # as counted by the server
        ("output_tokens", _i64),  # as counted by the server; 0 for failed requests
        ("partial_output_tokens", _i64),  # tokens seen before a failure; null when ok
        ("tokens_source", _str),  # server | estimated | none
        ("first_chunk_tokens", _i64),
        ("cached_tokens", _i64),  # null = not reported
        ("cached_tokens_device", _i64),
        ("cached_tokens_host", _i64),
        ("cached_tokens_storage", _i64),
        ("retractions", _i64),
        ("dp_rank", _i32),
        ("accept_length", _f64),
        ("no_answer_text", _bool),  # tokens came, all of them reasoning
        ("text_chars", _i64),
        ("bytes_received", _i64),
        ("events", _i64),
        ("engine_queue_s", _f64),
        ("engine_ttft_s", _f64),
        ("engine_e2e_s", _f64),
        ("engine_prefill_s", _f64),
        ("engine_decode_s", _f64),  # first token to last by the engine's clock
        ("draft_tokens", _i64),
        ("accepted_tokens", _i64),
        ("verify_rounds", _i64),
        ("response_id", _str),  # the answer's own id
        ("answer_text", _str),  # of a prompt set only, as the server wrote it
        ("reasoning_text", _str),
        ("chunk_ns", pa.list_(_i64)),  # stamp of each chunk that carried tokens
        ("chunk_tokens", pa.list_(_i32)),  # tokens it carried
    ]
)

#: `outcome` of a request record.
Outcome = Literal[
    "ok",
    "http_error",
    "connect_error",
    "timeout",
    "disconnected",
    "bad_stream",
    "engine_error",
    "cancelled",
]

#: One row per device and sample. Memory in bytes as NVML reported it; null = not supported.
GPU = pa.schema(
    [
        ("host", _str),
        ("gpu_uuid", _str),
        ("gpu_index", _i32),
        ("sample_ns", _i64),
        ("sample_unix_ns", _i64),
        ("memory_total_bytes", _i64),
        ("memory_free_bytes", _i64),
        ("memory_used_bytes", _i64),
        ("memory_reserved_bytes", _i64),
        ("memory_api", _str),  # v1 | v2 | sim
        ("utilization_gpu_percent", _f64),
        ("utilization_memory_percent", _f64),
        ("power_w", _f64),
        ("temperature_c", _f64),
        ("sm_clock_mhz", _f64),
        ("clock_event_reasons", _i64),
        ("gap", _bool),  # True on a marker row: samples are missing before it
        ("note", _str),
    ]
)

#: One row per scrape of the engine. Counters run since the server's start.
SERVER = pa.schema(
    [
        ("arm", _str),
        ("instance", _str),
        ("sample_ns", _i64),
        ("sample_unix_ns", _i64),
        ("running_requests", _f64),
        ("queued_requests", _f64),
        ("kv_used_tokens", _f64),
        ("kv_usage", _f64),  # 0..1
        ("output_tokens_per_s", _f64),
        ("accept_length", _f64),
        ("requests_total", _f64),
        ("input_tokens_total", _f64),
        ("output_tokens_total", _f64),
        ("cached_tokens_total", _f64),
        ("preemptions_total", _f64),
        ("scrape_ms", _f64),
        ("error", _str),
        ("note", _str),  # a restart seen in the counters
    ]
)

#: One row per line of the engine's own log that tells something about its cache, and per gap in the reading.
SERVER_LOG = pa.schema(
    [
        ("arm", _str),
        ("position", _i64),  # bytes read of the log since the reading began, this line included
        ("sample_ns", _i64),  # when the line was read
        ("sample_unix_ns", _i64),
        ("kind", _str),  # prefill | retraction | flush | flush_refused | gap
        ("dp_group", _i32),  # data-parallel rank; null where there is but one
        ("stage", _i32),  # pipeline stage
        ("twins", _str),  # place among the ranks that do the same work, as `EP0 TP0`
        ("requests", _i64),  # of a prefill batch, or retracted
        ("new_tokens", _i64),  # computed in a prefill batch
        ("cached_tokens", _i64),  # found in any tier of the cache
        ("told_hit_rate", _f64),  # what the line itself says, 0..1
        ("note", _str),  # of a gap: why
    ]
)

#: The worker's own health, two rows a second.
WORKER = pa.schema(
    [
        ("worker", _str),
        ("point_id", _str),
        ("attempt", _i32),
        ("sample_ns", _i64),
        ("sample_unix_ns", _i64),
        ("in_flight", _i64),
        ("completed", _i64),
        ("output_tokens_seen", _i64),
        ("loop_lag_ms_max", _f64),
        ("cpu_share", _f64),
        ("send_delay_ms_max", _f64),  # worst lateness of a start of the ramp; null = none was due
        ("unread_streams_share", _f64),  # of the streams looked at; null = the client cannot look
        ("unread_bytes_max", _i64),  # most bytes found waiting in one of them
    ]
)

SCHEMAS = {"requests": REQUESTS, "gpu": GPU, "server": SERVER, "server_log": SERVER_LOG, "worker": WORKER}
