"""docs/OPERATIONS.md says of every finding, and of every step that may fail, what it means and what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
#: The rows of its tables, by the codes in their first cell.
ROWS = {
    name: [cell.strip() for cell in line.strip("|").split("|")]
    for line in OPERATIONS.splitlines()
    if line.startswith("| `")
    for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
}


def trees(*folders: str) -> Iterator[ast.Module]:
    for folder in folders:
        for path in sorted((ROOT / "raybench" / folder).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def words(node: ast.AST) -> set[str]:
    """The strings in an expression."""
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def codes(tree: ast.Module) -> Iterator[set[str]]:
    """The codes of each place that makes a finding: as an argument, or given to the name `code` before."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            where = {"Finding": 0, "void_verdict": 0, "_told": 1}.get(name_of(node))
            if where is not None and len(node.args) > where:
                yield words(node.args[where])
            if name_of(node) == "append" and node.args and isinstance(node.args[0], ast.Tuple):
                yield words(node.args[0].elts[-1])
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "code" for one in node.targets):
            yield words(node.value)


def steps(tree: ast.Module) -> Iterator[set[str]]:
    """Steps against the engine that may fail: of a TargetError, and of a wait that ends in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            where = {"TargetError": 0, "_until": 1}.get(name_of(node))
            if where is not None and len(node.args) > where:
                yield words(node.args[where])


CODES = {
    code
    for tree in trees("protocol")
    for found in codes(tree)
    for code in found
    if re.fullmatch("[a-z]+(_[a-z]+)*", code)
}
STEPS = {step for tree in trees("") for found in steps(tree) for step in found}


def test_every_way_to_name_a_finding_is_seen() -> None:
    assert {
        "hit_rate_exceeded",  # an argument
        "client_saturated",  # one of two, by a condition
        "concurrency_exceeded",  # a name that was set before
        "input_length_differs",  # a list of pairs
        "clock_jumped",  # a function that makes the finding
        "text_exhausted",  # a verdict of its own
    } <= CODES
    unnamed = [
        ast.unparse(node)
        for tree in trees("protocol")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node) == "Finding"
        if not words(node.args[0]) and getattr(node.args[0], "id", "") != "code"
    ]
    assert not unnamed, "this test does not see which code these have"


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_finding_has_a_row_that_says_what_to_do(code: str) -> None:
    _, severity, meaning, way_out = ROWS[code]
    assert re.match("void|strict|warning|note", severity)
    assert meaning
    assert way_out


@pytest.mark.parametrize("step", sorted(STEPS))
def test_every_step_that_may_fail_has_a_row(step: str) -> None:
    assert ROWS.get(step) or ROWS.get(f"{step}_failed")


def test_no_row_is_about_something_that_does_not_exist() -> None:
    known = CODES | STEPS | {f"{step}_failed" for step in STEPS}
    assert set(ROWS) <= known
