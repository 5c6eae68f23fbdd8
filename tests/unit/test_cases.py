"""Every field failure of the cluster, the server's protocol and the GPU telemetry has a test that names it.

The ids are those of the list of field failures from which raybench was specified.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

#: What each is about, in a few words.
CASES = {
    "o_p1": "a flush is refused while anything runs",
    "o_p2": "a flush that says 200 and did not flush",
    "o_p3": "lower cache tiers survive the flush",
    "o_p4": "cached tokens: unknown is not zero",
    "o_p5": "prefill log lines in many shapes",
    "o_p6": "renamed endpoints, renamed metrics, extra series",
    "o_r1": "upload size of the working directory",
    "o_r2": "a named actor left over from an earlier run",
    "o_r3": "fewer client nodes than asked",
    "o_r4": "a client actor dies in the middle of a point",
    "o_r5": "clocks of two hosts",
    "o_g1": "a field, a device or all of NVML not available",
    "o_g2": "used memory with and without the reserved part",
}


@cache
def names_of_tests() -> list[str]:
    return [
        node.name
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_a_test_that_names_it(case: str) -> None:
    assert [name for name in names_of_tests() if name.startswith(f"test_{case}_")], CASES[case]
