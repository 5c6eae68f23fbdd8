"""The report's section on deployments, from what a run has kept."""

from pathlib import Path
from typing import Any

from raybench.records.rundir import RunDirectory
from raybench.report.environment import launch_commands, made_of_table, process_table
from raybench.report.source import ArmFacts, Run, Source
from raybench.report.text import ENGLISH

RECORD: dict[str, Any] = {
    "argv": ["serve", "--model", "my model", "--api-key", "<redacted>"],
    "load_s": 71.94,
    "process_s": 313.3,
    "exit_code": 143,
    "reason": "stopped",
    "evidence": None,
}
FAILED = RECORD | {
    "load_s": None,
    "process_s": 12.0,
    "exit_code": 1,
    "reason": "out_of_memory",
    "evidence": "CUDA out of memory",
}
KEPT = {
    "artifacts": [{"as_given": "m.gguf", "sha256": "ab" * 32, "size_bytes": 23719715844}],
    "image": "me/it:1",
    "git": {"path": "/src", "head": "b0c7ffc", "changed": True},
    "versions": {"driver": "580.1"},
}


RUN = Run(RunDirectory(Path("run")), {})


def source() -> Source:
    """B says itself how it was launched."""
    launched = ArmFacts(RUN, settings={"launch": {"argv": ["serve"]}}, processes=[FAILED, RECORD], inventory=KEPT)
    reached = ArmFacts(RUN, facts={"raw": {"launch_command": "serve b"}})
    return Source((RUN,), [], {"A": launched, "B": reached})


def test_each_process_is_a_row_with_its_times_and_its_end() -> None:
    assert [row.cells for row in process_table(source(), ENGLISH).rows] == [
        ("A", "—", "12.0 s", "out of memory (1): CUDA out of memory"),
        ("A", "71.9 s", "313.3 s", "stopped by raybench (143)"),
    ]


def test_a_process_that_was_killed_with_raybench_has_no_end() -> None:
    record = RECORD | {"process_s": None, "exit_code": None, "reason": None}
    killed = Source((RUN,), [], {"A": ArmFacts(RUN, processes=[record])})
    assert process_table(killed, ENGLISH).rows[0].cells == ("A", "71.9 s", "—", "—")


def test_the_last_command_line_of_each_arm_can_be_pasted() -> None:
    launched = ("A", "serve --model 'my model' --api-key '<redacted>'")
    assert launch_commands(source()) == [launched, ("B", "serve b")]


def test_the_ledger_holds_artifacts_image_working_copy_and_versions() -> None:
    assert [row.cells for row in made_of_table(source(), ENGLISH).rows] == [
        ("A", "m.gguf", f"{'ab' * 32} (23,719,715,844 B)"),
        ("A", "image", "me/it:1"),
        ("A", "git /src", "b0c7ffc + changes"),
        ("A", "driver", "580.1"),
    ]
