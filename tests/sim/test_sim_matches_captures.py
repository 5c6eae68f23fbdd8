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

from raybench.scenario.faults import SimFaults
from raybench.scenario.sim_block import Sim
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
    """Differences that stay. answers, lines: patterns of `folder/name` and of what `differences` says; count: how
    many such lines there are."""

    answers: str
    lines: str
    count: int
    why: str


KNOWN: tuple[Known, ...] = ()


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
            ours = await replay(url, recorded, set_up.companions)
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
    assert len(lines) == known.count, sorted(lines)


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
