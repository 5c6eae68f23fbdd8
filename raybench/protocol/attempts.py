"""An attempt and what it sends: text that the server has never seen, or the prompts of a set.

Runs in the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raybench.corpus.prompts import Prompt, digests
from raybench.corpus.windows import WindowLedger
from raybench.engines.contract import RequestShape
from raybench.load.pacer import Schedule, make_schedule
from raybench.protocol.context import RunContext
from raybench.scenario.plan import Point
from raybench.scenario.workload import Workload

Windows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Attempt:
    """One try of a point, with the text that it may send. serial: unique in the run, for rids.

    schedule: of an open loop. prompts: of a prompt set, sent in turn; flush: whether the cache is emptied before.
    """

    point: Point
    number: int
    serial: int
    shape: RequestShape
    windows: Windows
    prewarm_windows: Windows
    schedule: Schedule | None = None
    prompts: tuple[Prompt, ...] = ()
    flush: bool = True

    @property
    def where(self) -> dict[str, object]:
        """By which lines of the journal name it."""
        return {"point_id": self.point.point_id, "attempt": self.number}


class AttemptMaker:
    """Makes the attempts of all points. serial: of the last attempt of earlier invocations."""

    def __init__(self, context: RunContext, serial: int) -> None:
        self._scenario = context.scenario
        self._run_id = context.run_id
        self._corpus = context.corpus
        self._traces = context.traces
        self._prompt_sets = context.prompt_sets
        self._journal = context.journal
        self._serial = serial

    def tries(self, point: Point) -> int:
        """Most attempts of a point. Where nothing can make sent text cold again, a second one proves nothing."""
        prompt_set = self._workload(point).prompt_set
        once = prompt_set is not None and prompt_set.cold_by == "no_prefix_reuse"
        return 1 if once else self._scenario.guards.attempts_max

    def make(self, point: Point, number: int, ledger: WindowLedger) -> Attempt:
        """Journalled, with its text in the ledger first. Raises WindowsExhausted."""
        workload = self._workload(point)
        prompts = self._prompt_sets.get(workload.name, ())
        if prompts:
            told: dict[str, object] = {"prompts": digests(prompts)}
            windows, warm = np.zeros(point.requests, np.int64), np.zeros(0, np.int64)
        else:
            windows, warm = self._take(point, number, ledger)
            told = {"windows": {"load": _span(windows), "prewarm": _span(warm)}}
        self._serial += 1
        self._journal.append(
            "attempt_started", point_id=point.point_id, attempt=number, serial=self._serial, **told
        )
        flush_helps = workload.prompt_set is None or workload.prompt_set.cold_by == "flush"
        return Attempt(
            point=point,
            number=number,
            serial=self._serial,
            shape=self._shape(point, workload),
            windows=windows,
            prewarm_windows=warm,
            schedule=make_schedule(workload, point.level, point.requests, self._traces.get(workload.name)),
            prompts=prompts,
            flush=self._scenario.guards.flush and flush_helps,
        )

    def _take(self, point: Point, number: int, ledger: WindowLedger) -> tuple[Windows, Windows]:
        """Windows of the load and of the prewarm."""
        assert self._corpus is not None, "the schema asks for a corpus"
        purpose = f"{self._run_id} {point.point_id} attempt {number}"
        ids, length, sha256 = self._corpus.ids, point.input_tokens, self._corpus.sha256
        warm = np.zeros(0, np.int64)
        if point.prewarm_requests:
            warm = ledger.take(ids, point.prewarm_requests, length, f"{purpose} prewarm", corpus_sha256=sha256)
        return ledger.take(ids, point.requests, length, f"{purpose} load", corpus_sha256=sha256), warm

    def _shape(self, point: Point, workload: Workload) -> RequestShape:
        arm = self._scenario.arms[point.arm]
        return RequestShape(
            route=arm.effective_route,
            input_tokens=point.input_tokens,
            output_tokens=point.output_tokens,
            model=arm.model,
            temperature=workload.temperature,
            ignore_eos=workload.effective_ignore_eos,
            stream=workload.stream,
            extra_body=dict(arm.extra_body),
            prompt="corpus" if workload.prompt_set is None else "text",
        )

    def _workload(self, point: Point) -> Workload:
        return next(w for w in self._scenario.workloads if w.name == point.workload)


def _span(windows: Windows) -> dict[str, int] | None:
    """Where in the corpus the windows begin: lowest, highest, how many."""
    if not len(windows):
        return None
    return {"first": int(windows.min()), "last": int(windows.max()), "count": len(windows)}
