"""A liar's gallery: engines that lie or fail, each with the finding that must catch it; and honest ones.

`make lies` runs all of them, prints a line for each and one JSON object at the end. The table of
docs/VALIDITY.md is this list.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from in_process import Played, play

from raybench.scenario.schema import Scenario

#: Runs that go on at a time, all on one event loop.
AT_ONCE = 4
#: A limit that no honest run meets, however busy the machine is.
AMPLE_S = 60.0


@dataclass(frozen=True)
class Case:
    """One engine. caught_by: the finding (or the step that fails) without which nothing is proven; None = honest.

    warns: a finding that an accepted run of it must carry. held_windows: see `in_process.play`. What differs from
    the common scenario is in the other fields.
    """

    name: str
    what: str
    caught_by: str | None = None
    warns: str | None = None
    faults: Mapping[str, Any] = field(default_factory=dict)
    sim: Mapping[str, Any] = field(default_factory=dict)
    arm: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)
    held_windows: int | None = None

    @property
    def lies(self) -> bool:
        return self.caught_by is not None

    def scenario(self) -> Scenario:
        sim = {"profile": "small", "time_compression": 2.0, "faults": dict(self.faults), **self.sim}
        workload = {"name": "load", "input_tokens": 256, "output_tokens": 24, "concurrency": [4], "requests": 8}
        guards = {"prewarm_requests": 1, "idle_stable_s": 0.0, "start_lead_s": 0.05, "on_void": "next"}
        guards |= {"counters_settle_s": 2.0, "flush_retry_s": 0.1, "ghost_grace_s": 0.3}
        guards |= dict.fromkeys(("alive_timeout_s", "idle_timeout_s", "flush_timeout_s"), AMPLE_S)
        return Scenario.model_validate(
            {
                "name": self.name,
                "arms": {"arm": {"sim": sim, **self.arm}},
                "workloads": [
                    {key: value for key, value in (workload | self.workload).items() if value is not None}
                ],
                "corpus": {"synthetic": {"tokens": 262_144}},
                "guards": guards | self.guards,
                "load": dict(self.load),
                "monitors": {"gpu": {"source": "none"}},
            }
        )


@dataclass(frozen=True)
class Judged:
    """How a case ended. right: a lie was caught by its finding and nothing accepted; an honest run accepted."""

    case: Case
    verdicts: list[str]
    findings: dict[str, tuple[str, str]]
    reason: str | None
    steps: list[dict[str, Any]]

    @property
    def right(self) -> bool:
        accepted = "accepted" in self.verdicts
        if self.case.lies:
            by = self.case.caught_by or ""
            return not accepted and (
                self.findings.get(by, ("", ""))[0] == "void" or f"{by}:" in (self.reason or "")
            )
        told = self.case.warns is None or self.case.warns in self.findings
        return bool(self.verdicts) and set(self.verdicts) == {"accepted"} and told


WARM = {"always_hit": True}
SHORT = {"flush_timeout_s": 1.0}

LIES = [
    # The cache is warm, and somebody says it is not.
    Case("warm", "every prompt is found in a tier that no flush clears", "hit_rate_exceeded", faults=WARM),
    Case(
        "preloaded",
        "the whole corpus lies in the host tier since before the run",
        "hit_rate_exceeded",
        faults={"host_tier": True, "preload_corpus": True},
    ),
    Case(
        "storage_preloaded",
        "the corpus lies in a storage tier whose clear answers 200 and clears nothing",
        "hit_rate_exceeded",
        faults={"storage_tier": True, "preload_corpus": True},
    ),
    Case(
        "flush_claimed",
        "the flush answers 200 and clears nothing; the cache is warm",
        "hit_rate_exceeded",
        faults=WARM | {"flush": "claimed"},
    ),
    Case(
        "flush_partial",
        "the flush answers for rank 0 while rank 1 of 2 keeps its cache",
        "hit_rate_exceeded",
        faults=WARM | {"flush": "first_rank", "dp_ranks": 2},
    ),
    Case(
        "rank_below_the_mean",
        "a warm rank that the mean over all ranks hides below the limit",
        "hit_rate_exceeded",
        faults=WARM | {"flush": "first_rank", "dp_ranks": 2},
        guards={"hit_rate_max": 0.6},
    ),
    Case(
        "hits_hidden",
        "answers leave cached tokens out; the counters tell them",
        "hit_rate_exceeded",
        faults=WARM | {"cached_tokens": "hidden"},
    ),
    Case(
        "hits_denied",
        "answers say 0 cached tokens; the counters tell them",
        "hit_rate_exceeded",
        faults=WARM | {"cached_tokens": "zero"},
    ),
    Case(
        "hits_only_in_the_log",
        "answers and counters say 0; the log tells the hits",
        "hit_rate_exceeded",
        faults=WARM | {"cached_tokens": "zero", "metrics": "no_hits"},
    ),
    Case(
        "hits_only_in_the_log_without_metrics",
        "answers say 0 and there are no counters; the log tells the hits",
        "hit_rate_exceeded",
        faults=WARM | {"cached_tokens": "zero", "metrics": "gone"},
    ),
    Case(
        "hits_denied_by_counters",
        "the counters say 0; answers and log tell the hits",
        "hit_rate_exceeded",
        faults=WARM | {"metrics": "no_hits"},
    ),
    Case(
        "old_version_warm",
        "an old version without prefill counters, warm, answers without cached tokens",
        "hit_rate_exceeded",
        faults=WARM | {"old_names": True, "cached_tokens": "hidden"},
    ),
    Case(
        "nothing_told",
        "neither answers nor counters nor log tell of hits",
        "hit_rate_not_verified",
        faults=WARM | {"cached_tokens": "hidden", "metrics": "gone", "log": "silent"},
    ),
    Case(
        "log_tells_hits",
        "the log tells hits that answers and counters deny",
        "hit_rate_exceeded",
        faults={"log": "hits"},
    ),
    Case(
        "sources_contradict",
        "a warm point is asked for, and answers and counters tell different rates",
        "hit_sources_disagree",
        faults=WARM | {"cached_tokens": "zero"},
        guards={"hit_rate_max": 1.0},
    ),
    Case(
        "log_contradicts",
        "a warm point is asked for, and the log tells another rate",
        "hit_sources_disagree",
        faults={"log": "hits"},
        guards={"hit_rate_max": 1.0},
    ),
    # The flush does not happen.
    Case("flush_refused", "every flush is refused", "flush_failed", faults={"flush": "refused"}, guards=SHORT),
    Case("flush_hangs", "the flush never answers", "flush_failed", faults={"flush": "hangs"}, guards=SHORT),
    Case("flush_missing", "there is no flush endpoint", "flush_failed", faults={"flush": "missing"}),
    # It is not idle, or not there.
    Case(
        "busy",
        "one request is running for ever by the engine's numbers",
        "idle_failed",
        faults={"queue": "busy"},
        guards={"idle_timeout_s": 1.0},
    ),
    Case(
        "never_alive",
        "the liveness probe never says yes",
        "alive",
        faults={"never_alive": True},
        guards={"alive_timeout_s": 0.5},
    ),
    # Somebody else is there.
    Case(
        "foreign",
        "another client sends a request for each three of ours",
        "foreign_traffic",
        faults={"foreign_every": 3},
    ),
    Case(
        "foreign_once",
        "another client sends one request during the load",
        "foreign_traffic",
        faults={"foreign_every": 8},
    ),
    Case(
        "foreign_lasting",
        "another client's request is still running when ours are done, and counted by no counter yet",
        "foreign_traffic",
        faults={"foreign_every": 8, "foreign_output_tokens": 20_000},
        workload={"prewarm_requests": 0},
        guards={"counters_settle_s": 0.5},
    ),
    Case(
        "foreign_without_metrics",
        "another client's requests, and no counters: only the log tells",
        "foreign_traffic",
        faults={"foreign_every": 3, "metrics": "gone"},
    ),
    Case(
        "foreign_old_version",
        "another client's requests on an old version",
        "foreign_traffic",
        faults={"foreign_every": 3, "old_names": True},
    ),
    # It is another process.
    Case("restart", "the engine is restarted during the load", "server_restarted", faults={"restart_after": 6}),
    Case(
        "restart_hidden",
        "the engine is restarted and keeps its name; its counters fall",
        "server_restarted",
        faults={"restart_after": 14, "restart_hidden": True},
        workload={"prewarm_requests": 6},
    ),
    Case(
        "restart_caught_up",
        "the restarted engine keeps its name and its counters are above those before the load again",
        "counters_behind",
        faults={"restart_after": 3, "restart_hidden": True},
    ),
    Case("metrics_frozen", "the counters never move", "counters_behind", faults={"metrics": "frozen"}),
    Case(
        "metrics_lost",
        "the counters are gone after the load",
        "counters_lost",
        faults={"metrics": "gone_after_load"},
    ),
    # Lengths are not those that were asked.
    Case(
        "output_clipped",
        "answers are clipped without a word",
        "output_length_differs",
        faults={"lengths": "output_clipped"},
    ),
    Case(
        "input_clipped",
        "prompts are clipped without a word",
        "input_length_differs",
        faults={"lengths": "input_clipped"},
    ),
    Case(
        "output_inflated",
        "twice the tokens are counted",
        "output_length_differs",
        faults={"lengths": "output_inflated"},
    ),
    Case("lengths_hidden", "no tokens are counted at all", "tokens_estimated", faults={"lengths": "hidden"}),
    Case(
        "stopped",
        "one answer in four ends early with `stop`",
        "output_length_differs",
        faults={"answer": "stopped", "answer_every": 4},
    ),
    Case(
        "empty",
        "one answer in four is a success without a token",
        "empty_answers",
        faults={"answer": "empty", "answer_every": 4},
        workload={"ignore_eos": False},
    ),
    # Answers break.
    Case(
        "error_event",
        "an error event in the middle of a 200",
        "requests_failed",
        faults={"answer": "error_event", "answer_every": 4},
    ),
    Case(
        "error_first",
        "an error event before any token",
        "requests_failed",
        faults={"answer": "error_first", "answer_every": 4},
    ),
    Case(
        "aborted",
        "the engine aborts answers under way",
        "requests_failed",
        faults={"answer": "aborted", "answer_every": 4},
    ),
    Case(
        "cut",
        "the connection breaks inside an event",
        "requests_failed",
        faults={"answer": "cut", "answer_every": 4},
    ),
    Case(
        "unended",
        "the stream ends early and cleanly, without its end",
        "requests_failed",
        faults={"answer": "unended", "answer_every": 4},
    ),
    Case("garbled", "an event is no JSON", "requests_failed", faults={"answer": "garbled", "answer_every": 4}),
    Case(
        "unavailable",
        "503 for one request in four",
        "requests_failed",
        faults={"answer": "unavailable", "answer_every": 4},
    ),
    Case("all_unavailable", "503 for every request, quickly", "requests_failed", faults={"answer": "unavailable"}),
    Case(
        "reset",
        "the connection is reset before the answer",
        "requests_failed",
        faults={"answer": "reset", "answer_every": 4},
    ),
    Case(
        "silent",
        "headers, and then nothing for ever",
        "requests_failed",
        faults={"answer": "silent", "answer_every": 4},
        load={"request": {"idle_timeout_s": 1.0}},
    ),
    Case(
        "stalled",
        "some tokens, and then nothing for ever",
        "requests_failed",
        faults={"answer": "stalled", "answer_every": 4},
        load={"request": {"idle_timeout_s": 1.0}},
    ),
    Case(
        "ghosts",
        "requests that we gave up go on inside, until they are aborted by id",
        "requests_failed",
        faults={"answer": "stalled", "answer_every": 4, "ghosts": True},
        sim={"time_compression": 1.0},
        workload={"output_tokens": 2048, "concurrency": [2], "requests": 4, "prewarm_requests": 0},
        load={"request": {"request_timeout_s": 0.5}},
    ),
    Case(
        "in_one_piece",
        "a proxy holds every stream back until its end",
        "answers_in_one_piece",
        faults={"answer": "in_one_piece"},
    ),
]

#: More answers at once than a small pool can hold to their ends.
CROWDED = {
    "ignore_eos": False,
    "input_tokens": 128,
    "output_tokens": 128,
    "concurrency": [8],
    "requests": 32,
}

HONEST = [
    Case("small", "profile small"),
    Case(
        "tp2pp4", "profile tp2pp4: four pipeline stages log each batch, no prefix cache", sim={"profile": "tp2pp4"}
    ),
    Case(
        "tp8_eagle3",
        "profile tp8_eagle3: speculative decoding and a host tier",
        sim={"profile": "tp8_eagle3", "time_compression": 12.0},
    ),
    Case("incremental", "events hold only what is new", sim={"incremental": True}),
    Case("completions", "the OpenAI route", arm={"route": "completions"}),
    Case("not_streamed", "answers without streaming", workload={"stream": False}),
    Case("one_at_a_time", "concurrency 1", workload={"concurrency": [1], "requests": 8}),
    Case(
        "queueing",
        "sixteen in flight, four running: a queueing point",
        sim={"max_running_requests": 4},
        workload={"concurrency": [16], "requests": 32},
    ),
    Case(
        "open_loop",
        "requests by a schedule",
        workload={"concurrency": None, "rate_per_s": [20.0], "requests": 20},
        guards={"late_share_max": 1.0},  # a client that shares its process with all others is late at times
    ),
    Case(
        "retractions",
        "a pool too small for all answers: retractions, whose second prefill hits",
        warns="preemptions",
        sim={"kv_pool_tokens": 1024},
        workload=CROWDED,
    ),
    Case(
        "retractions_in_cached_tokens",
        "the same on a version that counts second prefills among the cached tokens",
        warns="hits_left_out",
        faults={"cached_tokens": "with_retractions", "host_tier": True},
        sim={"kv_pool_tokens": 1024},
        workload=CROWDED,
    ),
    Case("chunked", "prompts longer than a prefill chunk", workload={"input_tokens": 5000}),
    Case("small_pages", "pages of one token", sim={"page_tokens": 1}),
    Case("dp_ranks", "two data-parallel ranks, both flushed", faults={"dp_ranks": 2}),
    Case("flush_refusals", "two flushes are refused, the third is done", faults={"flush_refusals": 2}),
    Case("old_version", "endpoints and metrics under their old names", faults={"old_names": True}),
    Case(
        "first_text_held",
        "the host tier holds the text of the first attempt: rejected, then accepted on fresh text",
        warns="hit_rate_exceeded",
        faults={"host_tier": True, "preload_corpus": True},
        held_windows=9,
    ),
    Case(
        "host_tier",
        "a host tier that survives the flush: fresh text is cold all the same",
        faults={"host_tier": True},
    ),
    Case("storage_tier", "a storage tier that survives flush and clear, likewise", faults={"storage_tier": True}),
    Case(
        "hits_not_told",
        "answers without cached tokens: counters and log prove it",
        faults={"cached_tokens": "hidden"},
    ),
    Case("no_metrics", "no counters: answers and log prove it", faults={"metrics": "gone"}),
    Case(
        "log_silent",
        "a log without prefill lines: unknown, not zero",
        warns="log_silent",
        faults={"log": "silent"},
    ),
    Case(
        "no_metrics_no_log",
        "answers alone prove it",
        warns="traffic_not_verified",
        faults={"metrics": "gone", "log": "silent"},
    ),
    Case("queue_not_told", "no load endpoint: the queue is read from the counters", faults={"queue": "gone"}),
    Case(
        "idle_told_too_early", "says idle while busy: the flush is refused until it is", faults={"queue": "idle"}
    ),
    Case("comments", "streams with comments before the first token", faults={"comments": True}),
    Case("slow_accept", "connections are accepted one by one", faults={"slow_accept_s": 0.01}),
    Case(
        "some_fail",
        "one request in four fails, and the scenario allows half of them to",
        warns="requests_failed",
        faults={"answer": "unavailable", "answer_every": 4},
        guards={"success_rate_min": 0.5},
    ),
]

CASES = LIES + HONEST


def judged(case: Case, played: Played) -> Judged:
    return Judged(case, played.verdicts(), played.findings(), played.outcome.reason, played.events("step"))


async def show(cases: list[Case], folder: Path) -> list[Judged]:
    """Run all cases, some at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> Judged:
        async with room:
            path = folder / case.name
            path.mkdir()
            return judged(case, await play(case.scenario(), path, held_windows=case.held_windows))

    return list(await asyncio.gather(*map(one, cases)))


def summary(results: list[Judged]) -> dict[str, int]:
    lies = [result for result in results if result.case.lies]
    return {
        "lies": len(lies),
        "caught": sum(result.right for result in lies),
        "false_alarms": sum(not result.right for result in results if not result.case.lies),
    }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="raybench-lies-") as folder:
        results = asyncio.run(show(CASES, Path(folder)))
    for result in results:
        case = result.case
        kind = "lie   " if case.lies else "honest"
        told = ", ".join(sorted(result.findings)) or "no finding"
        verdicts = ", ".join(result.verdicts) or f"stopped: {result.reason}"
        print(f"{'right' if result.right else 'WRONG'}  {kind} {case.name}: {verdicts} ({told})")
    print(json.dumps(summary(results)))
    return 0 if all(result.right for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
