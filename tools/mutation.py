"""Whether the tests can fail: change one place of a module at a time and run the tests that call it.

`make mutate ARGS="protocol/desk.py analysis --each 4 --seed 2"`. Works on a copy of the tree, one forked process a
mutant. What was not killed is printed with its change, and the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from types import FrameType

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
#: In the order of the data: what comes before a room is imported once for all of its mutants.
ROOMS = ("scenario", "records", "corpus", "engines", "load", "monitors", "analysis", "protocol")
DEFAULT = ("engines", "analysis", "protocol")
#: Beginnings of the names of the tests that may call these rooms.
TESTS = ("engines", "analysis", "protocol", "golden", "report", "monitors_server", "corpus_prompts")
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)]
SWAPS: dict[type, type] = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])} | {ast.FloorDiv: ast.Mult}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: CPU seconds of tests a mutant: its module's own file, then those that call most of the module; what survives
#: them meets the next ones.
SECONDS_MAX, SECONDS_OF_SURVIVORS = 12.0, 60.0
#: Parts of the syntax tree whose change is no change of behaviour.
SKIPPED = ("annotation", "returns", "decorator_list")
#: Of one file of tests: its CPU seconds, and the functions that it calls as (path, first line; 0 is the module).
Traced = tuple[float, set[tuple[str, int]]]


@dataclass(frozen=True)
class Mutant:
    """One change. scope: first line of the innermost function, 0 is the module; begin, end: bytes of the file."""

    path: Path
    line: int
    scope: int
    begin: int
    end: int
    new: str

    def __str__(self) -> str:
        old = " ".join(self.path.read_bytes()[self.begin : self.end].decode().split())
        return f"{self.path}:{self.line}  {old}  ->  {self.new}"


def changes(node: ast.AST) -> Iterator[str]:
    """Sources that may stand in the place of this node."""
    other = copy.copy(node)
    match other:
        case ast.Compare(ops=[op, *rest]) if type(op) in SWAPS:
            other.ops = [SWAPS[type(op)](), *rest]
            yield f"({ast.unparse(other)})"
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            other.op = SWAPS[type(op)]()
            yield ast.unparse(other) if isinstance(other, ast.AugAssign) else f"({ast.unparse(other)})"
        case ast.UnaryOp(op=ast.Not()):
            yield f"({ast.unparse(other.operand)})"
        case ast.IfExp():
            other.body, other.orelse = other.orelse, other.body
            yield f"({ast.unparse(other)})"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield repr(value + 1)
        case ast.Constant(value=float() as value):
            yield repr(2 * value or 1.0)
        case ast.Name(id=name) if name in NAMES:
            yield NAMES[name]
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Continue() | ast.Break():
            yield "pass"


def mutants(path: Path) -> Iterator[Mutant]:
    """All of one module, in the order of its text."""
    starts = [0]
    for line in path.read_bytes().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, scope: int) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = min(one.lineno for one in (node, *node.decorator_list))
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, ast.JoinedStr):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            yield from (Mutant(path, node.lineno, scope, begin, end, new) for new in changes(node))
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and name not in SKIPPED and not isinstance(node, ast.JoinedStr):
                    yield from walk(child, scope)

    yield from walk(ast.parse(path.read_bytes()), 0)


def fork(task: Callable[[], int], limit_s: float) -> int | None:
    """Exit code of the task in a process of its own. None: it was ended at its limit, with all it had started."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
            code = task()
        finally:
            os._exit(code)
    end = time.monotonic() + limit_s
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(done[1])


class SameExamples:
    """A plugin of pytest: hypothesis makes the same examples each time, and looks for no smaller failure."""

    def pytest_sessionstart(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        like = hypothesis.settings.get_profile("raybench")
        hypothesis.settings.register_profile("mutation", like, phases=phases, database=None, derandomize=True)
        hypothesis.settings.load_profile("mutation")


def run_tests(*files: str) -> int:
    options = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*options, *files], plugins=[SameExamples()]))


def trace_tests(file: str, result: Path) -> int:
    called: set[tuple[str, int]] = set()
    tree = f"{Path.cwd()}{os.sep}"
    inside = f"{tree}raybench{os.sep}"

    def trace(frame: FrameType, _event: str, _value: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(inside):
            line = 0 if code.co_name == "<module>" else code.co_firstlineno
            called.add((code.co_filename.removeprefix(tree), line))

    begin = time.process_time()
    threading.settrace(trace)
    sys.settrace(trace)
    code = run_tests(file)
    sys.settrace(None)
    result.write_text(json.dumps([time.process_time() - begin, sorted(called)]))
    return code


def traced(names: list[str]) -> dict[str, Traced]:
    """Every file of tests of such a name, run once without any change."""
    found: dict[str, Traced] = {}
    result = Path(".traced.json")
    for path in sorted(Path("tests/unit").glob("test_*.py")):
        if path.name.startswith(tuple(f"test_{name}" for name in names)):
            code = fork(lambda file=str(path): trace_tests(file, result), 600)  # type: ignore[misc]
            if code != 0:
                raise SystemExit(f"{path} does not pass without any change: exit code {code}")
            seconds, called = json.loads(result.read_text())
            found[str(path)] = seconds, {(name, line) for name, line in called}
    return found


def play(mutant: Mutant, tests: dict[str, Traced]) -> str:
    """killed, survived, timeout, or uncovered: no test calls the function."""
    path = mutant.path
    own = f"tests/unit/test_{path.parent.name}_{path.stem}.py"
    calling = [file for file, (_, called) in tests.items() if (str(path), mutant.scope) in called]
    aimed = {file: sum(name == str(path) for name, _ in tests[file][1]) for file in calling}
    calling.sort(key=lambda file: (file != own, -aimed[file]))
    spent = list(accumulate(tests[file][0] for file in calling))
    first, last = (1 + bisect_right(spent, seconds) for seconds in (SECONDS_MAX, SECONDS_OF_SURVIVORS))
    source = path.read_bytes()
    code: int | None = 0 if calling else 5
    try:
        path.write_bytes(source[: mutant.begin] + mutant.new.encode() + source[mutant.end :])
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        for files in (calling[:first], calling[first:last]):
            if files and code == 0:
                code = fork(partial(run_tests, *files), 30 + 10 * sum(tests[file][0] for file in files))
    finally:
        path.write_bytes(source)
    return {0: "survived", 5: "uncovered", None: "timeout"}.get(code, "killed")


def chosen(target: str, each: int, seed: int) -> Iterator[Mutant]:
    """A sample of each module of a room or of one module, or every mutant of one line."""
    name, _, line = target.partition(":")
    place = Path("raybench") / name
    for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
        every = list(mutants(path))
        if line:
            yield from (one for one in every if one.line == int(line))
        else:
            picked = random.Random(f"{seed} {path}").sample(range(len(every)), min(each, len(every)))
            yield from (every[number] for number in sorted(picked))


def main() -> None:
    parser = argparse.ArgumentParser(description="change one place at a time and see whether a test fails")
    parser.add_argument("targets", nargs="*", default=DEFAULT, help="room, room/module.py, room/module.py:line")
    parser.add_argument("--each", type=int, default=8, help="mutants a module (default 8)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other mutants (default 1)")
    parser.add_argument(
        "--tests", nargs="+", default=TESTS, help="beginnings of names (default: all that may call)"
    )
    given = parser.parse_args()
    counts = {"killed": 0, "survived": 0, "uncovered": 0, "timeout": 0}
    with tempfile.TemporaryDirectory(prefix="raybench-mutation-") as folder:
        tree = str(Path(folder) / "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "runs"))
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": tree, "PYTHONDONTWRITEBYTECODE": "1"}
        sys.path.insert(0, tree)
        sys.dont_write_bytecode = False  # of the tree as it is; a mutant's is never written
        importlib.import_module("ray")  # the unit tests ban it by its name, which imports it
        tests = traced(given.tests)
        for room in ROOMS:
            targets = [target for target in given.targets if target.partition("/")[0] == room]
            sys.dont_write_bytecode = True
            for mutant in (one for target in targets for one in chosen(target, given.each, given.seed)):
                told = play(mutant, tests)
                counts[told] += 1
                if told != "killed":
                    print(f"{told:9} {mutant}", flush=True)
            sys.dont_write_bytecode = False
            for path in sorted(Path("raybench", room).glob("*.py")):
                importlib.import_module(".".join(path.with_suffix("").parts))
    lived = counts["survived"] + counts["uncovered"]
    told_last = {"mutants": sum(counts.values()), "killed": counts["killed"], "survived": lived}
    print(json.dumps(told_last | {"timeouts": counts["timeout"]}))


if __name__ == "__main__":
    main()
