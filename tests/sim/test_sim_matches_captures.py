"""The simulated engine beside the recorded bytes of the real one: every answer, structure for structure.

Each recorded set-up of SGLang is played again: the same requests, byte for byte, to a simulated engine of the same
set-up. What `answer_shapes` then finds different stands in `KNOWN`, with a reason, or fails a test; so does an
entry of `KNOWN` that is no difference any more.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest
from answer_shapes import differences, log_shapes
from engine_captures import everything_recorded, raw_answer, server_log
from replay import Exchange, exchanges, replay

from raybench.scenario.sim_block import Sim, SimFaults
from raybench.sim.server import serving

NEW, GPU = "sglang-0.5.23-cpu", "sglang-0.5.17-gpu"


@dataclass(frozen=True)
class SetUp:
    """How the simulated engine is set up as the real one was.

    folders: the recordings that one server is given, one after the other. companions: beside a recorded request,
    so many of which only one was recorded. any_order: requests of which the server was free to refuse any.
    """

    folders: tuple[str, ...]
    sim: Sim
    companions: dict[str, int] = field(default_factory=dict)
    any_order: str = "(?!)"


#: A flush right after the last answer is refused or not, as it happens; there it was.
REFUSES = SimFaults(flush_refusals=1)
SET_UPS = (
    SetUp((f"{NEW}/main",), Sim(page_tokens=1, kv_pool_tokens=65_536)),
    SetUp((f"{NEW}/no-radix",), Sim(profile="tp2pp4", time_compression=10, faults=REFUSES)),
    SetUp((f"{NEW}/incremental",), Sim(page_tokens=1, incremental=True, faults=REFUSES)),
    SetUp(
        (f"{NEW}/queue-limit",),
        Sim(page_tokens=1, max_running_requests=2, max_queued_requests=4),
        any_order=r"\d+_queue_\d+",
    ),
    SetUp(
        (f"{NEW}/retract",),
        Sim(page_tokens=1, kv_pool_tokens=3000, time_compression=4),
        companions={"04_retract_0": 23},
    ),
    SetUp((f"{NEW}/dp2", f"{NEW}/dp2/repeat"), Sim(page_tokens=1, faults=SimFaults(dp_ranks=2))),
    SetUp((f"{GPU}/hicache",), Sim(page_tokens=64, kv_pool_tokens=8192, faults=SimFaults(host_tier=True))),
    SetUp((f"{GPU}/hicache-storage",), Sim(page_tokens=64, faults=SimFaults(storage_tier=True))),
    SetUp((f"{GPU}/spec",), Sim(profile="tp8_eagle3", page_tokens=1)),
)

#: Recordings that no simulated engine is set up like.
NOT_SIMULATED = {
    "vllm-0.32.0-cpu/main": "the simulated engine speaks SGLang",
    "llamacpp-xllamacpp-2026.10.11549/main": "the simulated engine speaks SGLang",
    "transformers-5.24.0-serve/main": "the simulated engine speaks SGLang",
    "sglang-0.5.9-cpu/main": "the simulated engine speaks 0.5.23",
    "sglang-0.5.9-cpu/retract": "as above",
    "sglang-0.5.9-cpu/queue-limit": "as above",
    "sglang-0.5.9-cpu/incremental": "as above",
    f"{GPU}/main": "as above; from 0.5.17 come the set-ups that were recorded with no newer version",
    f"{GPU}/retract": "as above",
    f"{GPU}/incremental": "as above",
    f"{GPU}/bigpool_load": "as above",
    f"{GPU}/hicache-big": "as hicache",
}


@dataclass(frozen=True)
class Known:
    """Differences that stay.

    answers, lines: patterns of `folder/name` and of what `found` says. count: how many such lines there are; None
    where it is left to chance.
    """

    answers: str
    lines: str
    count: int | None
    why: str


OF_NEW, OF_GPU = r"sglang-0\.5\.23-cpu.*", r"sglang-0\.5\.17-gpu.*"
TEXT_ROUTES = f"{OF_NEW}_(stream_text|chat_.*|completions_.*|error_unknown_model)"
KNOWN = (
    # What the simulated engine has not.
    Known(
        f"{OF_NEW}server_info.*",
        r"(\.internal_states\[\])?: \w+ left out",
        996,
        "arguments that tell nothing of a deployment",
    ),
    Known(f"{OF_NEW}model_info", ": embedding left out", 1, "what an embedding model does; nothing reads it"),
    Known(
        f"{OF_NEW}load.*", r"\.loads\[\]: decode_moments left out", 1, "sums for a router's model of the engine"
    ),
    Known(".*metrics_.*", r"metrics: sglang:(dp_attention|routing_key)_\w+ left out", 7, "features it has not"),
    Known(
        ".*metrics_.*",
        r"metrics: sglang:(http|process_cpu|scheduler_(process_cpu|stage)|get_loads)_\w+ left out",
        7,
        "the engine's own processes and its HTTP side",
    ),
    Known(
        ".*metrics_.*",
        r"metrics: sglang:(per_stage_req_latency|startup_(cuda_graph_)?time)_seconds left out",
        3,
        "parts of times that are told whole",
    ),
    Known(
        ".*metrics_.*",
        r"metrics: sglang:(eviction|load_back)_duration_seconds left out",
        2,
        "it evicts in no time; loading back is part of a prefill",
    ),
    Known(
        f"{OF_NEW}/14_generate_stream_logprob",
        r"\w+\.meta_info: (in|out)put_token_logprobs(_length)? left out",
        3,
        "raybench never asks for log probabilities",
    ),
    Known(
        f"{OF_NEW}/15_generate_batch_ids",
        r"status: .* 400 .*|: object for list",
        2,
        "raybench never sends batches",
    ),
    # What it has of its own.
    Known(
        ".*server_info.*",
        r"(\.internal_states\[\])?\.(context_length|cuda_graph_max_bs_decode): whole for null",
        4,
        "given to it, and not to the real engine",
    ),
    Known(
        ".*server_info.*",
        r"(\.internal_states\[\])?\.max_total_tokens: null for whole",
        2,
        "given to the real engine, and not to it",
    ),
    Known(f"{OF_NEW}load.*", r"\.accelerator: text for null", 1, "the real engine ran on a CPU"),
    Known(
        f"{OF_NEW}metrics_.*",
        r"sglang:cuda_graph_passes_total mode: decode_(none left out|cuda_graph made up)",
        2,
        "on a CPU there are no graphs",
    ),
    Known(
        f"{OF_NEW}server\\.log",
        r"(left out|made up): \[stamp( DPN)?\] (Prefill|Decode) batch, .* c[pu]\w+ graph: .*",
        8,
        "on a CPU the line says `cpu graph`",
    ),
    Known(TEXT_ROUTES, r".*\.(prompt|total|cached)_tokens: another number", 7, "it cuts text into other tokens"),
    Known(
        f"{OF_NEW}/45_error_too_long_chat",
        r"\.message: another text",
        1,
        "the number of tokens of a text stands in it",
    ),
    Known(
        f"{OF_NEW}/(25_error_bad_max_tokens|47_error_bad_json_type)",
        r"\.message: another text",
        1,
        "the real one goes on with its source file",
    ),
    Known(
        f"{OF_NEW}/retract/04_retract_0",
        r"event\.meta_info\.num_retractions: another number",
        None,
        "which request is retracted is left to chance",
    ),
    Known(
        f"{OF_NEW}/(queue-limit|retract)/.*metrics_under_load",
        "metrics: sglang:inter_token_latency_seconds made up",
        None,
        "no recorded stream had its second token yet",
    ),
    # Ranks of data parallelism share one scheduler and one pool here, and are told apart in answers and log lines.
    Known(
        f"{OF_NEW}/dp2/\\d+_metrics_.*",
        r"sglang:\w+ series: .*'dp_rank'.* left out|sglang:\w+ series: .* made up",
        114,
        "one scheduler",
    ),
    Known(
        f"{OF_NEW}/dp2/repeat/.*",
        r".*meta_info\.cached_tokens(_details)?: (another number|object for null)",
        4,
        "one pool: the second rank finds what the first was sent",
    ),
    Known(
        f"{OF_NEW}/dp2/.*metrics_(under_load|after)",
        r".*(is_streaming: true|inter_token_latency_seconds) left out",
        7,
        "the load of that moment was recorded by its last events only",
    ),
    # Lies that are meant: docs/SCENARIOS.md, `host_tier` and `storage_tier`.
    Known(
        f"{OF_GPU}/(hicache/13_after_flush|hicache-storage/09_after_clear_and_flush)",
        r".*meta_info\.cached_tokens(_details)?: (another number|object for null)",
        2,
        "a tier that no flush clears",
    ),
    # What 0.5.17, which the set-ups with tiers and speculation are of, had otherwise than 0.5.23.
    Known(
        f"{OF_GPU}server_info.*",
        r"(\.internal_states\[\])?: (\w+ left out|another order)",
        826,
        "arguments of 0.5.17",
    ),
    Known(
        f"{OF_GPU}server_info.*",
        r".*: (hicache_object_layout|launch_command|frontend|world_size|cuda_graph) made up",
        4,
        "newer than 0.5.17",
    ),
    Known(
        OF_GPU,
        r"\w*\.meta_info: (storage_(prefetch|staging)_wait|weight_versions|first_token_latency) made up",
        8,
        "newer than 0.5.17",
    ),
    Known(
        OF_GPU,
        r"\w*\.meta_info: spec_(accepted_drafts|proposed_drafts|accept_histogram) left out",
        6,
        "older names of the same numbers",
    ),
    Known(f"{OF_GPU}metrics_.*", r"metrics: sglang:\w+ made up", 8, "newer than 0.5.17"),
    Known(
        f"{OF_GPU}metrics_.*",
        r"metrics: sglang:(backuped|prefetched)_tokens_total left out",
        2,
        "0.5.17 counts the storage tier's copies",
    ),
    Known(
        f"{OF_GPU}metrics_.*",
        r"sglang:(evicted|load_back)_tokens_total .*",
        8,
        "another class of cache, with other labels",
    ),
    Known(f"{OF_GPU}metrics_.*", r"sglang:evicted_tokens_total: another help", 1, "another text"),
    Known(
        f"{OF_GPU}/07_clear_storage",
        r"status: .* 404 .*|header: content-type made up|text: another",
        3,
        "the path is gone by 0.5.22",
    ),
    Known(
        f"{OF_GPU}server\\.log",
        r".*(/clear_hicache_storage_backend|Hierarchical cache|HiCacheFile).*",
        5,
        "the path is gone by 0.5.22",
    ),
    # Lines of a log that are not about serving.
    Known(".*server\\.log", r"left out: (?!\[stamp).*|.* parallel_prompt_encode: .*", 8, "warnings of Python"),
    Known(
        ".*server\\.log",
        r"left out: .*(SIG(TERM|QUIT) received|Gracefully|kill_process|Shutting|shutdown|Finished server|crash).*",
        10,
        "its end",
    ),
    Known(".*/(dp2|retract)/server\\.log", r"left out: .*GET /health .*", 1, "asked while it started"),
)


@dataclass(frozen=True)
class Played:
    """What the simulated engine answered, by `folder/name`, and logged in one set-up."""

    answers: dict[str, bytes]
    log: str


@cache
def played() -> dict[tuple[str, ...], Played]:
    """All set-ups, side by side, by their folders."""

    async def run() -> list[Played]:
        return await asyncio.gather(*(play(set_up) for set_up in SET_UPS))

    return {set_up.folders: one for set_up, one in zip(SET_UPS, asyncio.run(run()), strict=True)}


async def play(set_up: SetUp) -> Played:
    log, answers = io.StringIO(), {}
    async with serving(set_up.sim, log=log) as url:
        for folder in set_up.folders:
            recorded = exchanges(folder)
            ours = await replay(url, recorded, set_up.companions, set_up.any_order)
            answers |= {f"{folder}/{name}": answer for name, answer in paired(set_up, recorded, ours).items()}
    return Played(answers, log.getvalue())


def paired(set_up: SetUp, recorded: Sequence[Exchange], ours: dict[str, bytes]) -> dict[str, bytes]:
    """Where the server was free to refuse any, refused answers go to refused ones, served to served."""
    free = [one.name for one in recorded if re.fullmatch(set_up.any_order, one.name)]
    real = {one.name: one.real for one in recorded}
    pairs = {name: answer for name, answer in ours.items() if name not in free}
    for refused in (False, True):
        names = [name for name in free if (b'"abort"' in real[name]) is refused]
        answers = [ours[name] for name in free if (b'"abort"' in ours[name]) is refused]
        pairs |= dict(zip(names, answers, strict=False))
    return pairs


@cache
def found() -> dict[str, list[str]]:
    """`folder/name` -> what differs there. Of a log: which kinds of lines only one of the two has."""
    lines: dict[str, list[str]] = {}
    for set_up in SET_UPS:
        ours = played()[set_up.folders]
        for answer, path in recorded_answers(set_up):
            engine, _, name = answer.partition("/")
            if answer in ours.answers:
                lines[answer] = differences(raw_answer(engine, name), ours.answers[answer], path)
        for folder in LOGS & {*set_up.folders}:
            real, own = log_shapes(server_log(*folder.split("/", 1))), log_shapes(ours.log)
            left_out, made_up = sorted(real - own), sorted(own - real)
            lines[f"{folder}/server.log"] = [f"left out: {line}" for line in left_out]
            lines[f"{folder}/server.log"] += [f"made up: {line}" for line in made_up]
    return lines


def recorded_answers(set_up: SetUp) -> Iterator[tuple[str, str]]:
    """(`folder/name`, path) of all that a set-up is compared with."""
    for one in everything_recorded():
        answer = f"{one.engine}/{one.name}"
        if answer.rpartition("/")[0] in set_up.folders:
            yield answer, one.path


def is_known(known: Known, answer: str, line: str) -> bool:
    return bool(re.fullmatch(known.answers, answer) and re.fullmatch(known.lines, line, re.DOTALL))


LOGS = {f"{NEW}/main", f"{NEW}/retract", f"{NEW}/dp2", f"{GPU}/hicache-storage"}
ANSWERS = [
    *(answer for set_up in SET_UPS for answer, _ in recorded_answers(set_up)),
    *(f"{folder}/server.log" for folder in sorted(LOGS)),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_that_of_the_real_engine_but_for_known_differences(answer: str) -> None:
    lines = found().get(answer, [])
    assert [line for line in lines if not any(is_known(known, answer, line) for known in KNOWN)] == []


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.lines)
def test_a_known_difference_is_one_still_and_has_not_grown(known: Known) -> None:
    lines = {line for answer, all_lines in found().items() for line in all_lines if is_known(known, answer, line)}
    assert known.count in (None, len(lines)), sorted(lines)


def test_every_recording_is_compared_or_named_with_the_reason() -> None:
    compared = {folder for set_up in SET_UPS for folder in set_up.folders}
    recorded = {f"{one.engine}/{one.name}".rpartition("/")[0] for one in everything_recorded()}
    assert compared | NOT_SIMULATED.keys() == recorded
    assert not compared & NOT_SIMULATED.keys()
    missing = {answer for set_up in SET_UPS for answer, _ in recorded_answers(set_up)} - found().keys()
    assert all(re.fullmatch(rf"{NEW}/queue-limit/\d+_queue_\d+", answer) for answer in missing), missing
    served = [b'"abort"' not in answer for name, answer in queue_answers().items() if name in found()]
    assert {True, False} == {*served}


def queue_answers() -> dict[str, bytes]:
    folder = f"{NEW}/queue-limit"
    answers = played()[folder,].answers
    return {name: answer for name, answer in answers.items() if re.fullmatch(rf"{folder}/\d+_queue_\d+", name)}
