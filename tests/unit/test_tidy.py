"""The shape of the code is an ordinary test: layers, owners of libraries, cycles, sizes, strays.

Each rule reads the sources; none imports them. Imports inside functions count as any other.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "raybench"

#: Rooms in the order in which data flows: each may import those before it. The files beside the rooms are
#: the command line, which joins what may not know each other.
ROOMS = (
    "scenario",
    "records",
    "corpus",
    "engines",
    "load",
    "monitors",
    "analysis",
    "protocol",
    "deploy",
    "cluster",
    "report",
    "sim",
    "cli",
)
CLI_FILES = ("__main__", "arguments", "cli", "deploying", "driver", "reading", "roofline", "running", "submission")
#: Any room may import these.
FREE = ("raybench", "raybench.errors")

#: Who may import which library. A room that is not named must not.
OWNERS: dict[str, frozenset[str]] = {
    "ray": frozenset({"cluster"}),
    "aiohttp": frozenset({"load", "sim"}),
    "pynvml": frozenset({"monitors"}),
    "pyarrow": frozenset({"records", "analysis", "report", "corpus", "protocol"}),
    "numpy": frozenset({"corpus", "records", "load", "analysis", "protocol", "report", "sim"}),
    "pydantic": frozenset({"scenario", "cluster", "report", "sim", "cli"}),
    "pydantic_core": frozenset({"scenario"}),
    "yaml": frozenset({"scenario"}),
    "duckdb": frozenset({"report"}),
    "typer": frozenset({"cli"}),
    "rich": frozenset({"cli", "report"}),
    "jinja2": frozenset({"report"}),
    "markupsafe": frozenset({"report"}),
    "orjson": frozenset({"corpus", "engines", "sim"}),
    "prometheus_client": frozenset({"engines"}),
    "tokenizers": frozenset({"corpus"}),
    "psutil": frozenset({"deploy", "sim"}),
    "jsonschema": frozenset({"scenario", "protocol"}),
    "uvloop": frozenset({"load", "cluster", "sim"}),
}
#: In the room protocol only these may know Arrow.
PROTOCOL_WITH_ARROW = {
    "answer_checks",
    "client_checks",
    "evidence",
    "hit_checks",
    "load_checks",
}

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 450


@dataclass(frozen=True)
class Module:
    """One source file of the package. name: dotted."""

    path: Path
    name: str
    room: str
    tree: ast.Module
    lines: int


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        room = parts[1] if len(parts) > 2 else dict.fromkeys(CLI_FILES, "cli").get(parts[1], "")
        found.append(Module(path, name, room, ast.parse(text), len(text.splitlines())))
    return tuple(found)


@cache
def own_modules() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import; `from package import module` names the module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}:{node.lineno}: a relative import"
            assert node.module is not None
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                yield node.lineno, dotted if dotted in own_modules() else node.module


@cache
def lines_for_types_only(module: Module) -> frozenset[int]:
    """Those under `if TYPE_CHECKING:`, which never run."""
    return frozenset(
        line
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    )


def test_the_rooms_are_those_of_the_list() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ROOMS) - {"cli"}
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert files == {"__init__", "errors", *CLI_FILES}


def test_a_room_imports_only_rooms_before_it() -> None:
    wrong = []
    for module in modules():
        for line, name in imported(module):
            if name.partition(".")[0] != "raybench" or name in FREE:
                continue
            if not module.room:
                wrong.append(f"{module.name}:{line} imports {name}: it belongs to no room")
                continue
            part = name.split(".")[1]
            room = "cli" if part in CLI_FILES else part
            if ROOMS.index(room) > ROOMS.index(module.room):
                wrong.append(f"{module.name}:{line} imports {name}, which comes after {module.room}")
    assert not wrong, "\n".join(wrong)


def test_each_library_has_its_owners() -> None:
    wrong = []
    for module in modules():
        for line, name in imported(module):
            top = name.partition(".")[0]
            if top == "raybench" or top in sys.stdlib_module_names:
                continue
            if top not in OWNERS:
                wrong.append(f"{module.name}:{line} imports {top}, which has no owner yet")
            elif module.room not in OWNERS[top]:
                wrong.append(f"{module.name}:{line} imports {top}; only {', '.join(sorted(OWNERS[top]))} may")
            elif top == "pyarrow" and module.room == "protocol" and module.path.stem not in PROTOCOL_WITH_ARROW:
                wrong.append(f"{module.name}:{line} imports pyarrow; only {PROTOCOL_WITH_ARROW} may in protocol")
    assert not wrong, "\n".join(wrong)


def test_nvml_is_imported_by_its_name_in_the_monitors_only() -> None:
    """It is imported by `import_module`, since most hosts have none."""
    naming = [module.name for module in modules() if '"pynvml"' in module.path.read_text(encoding="utf-8")]
    assert naming == ["raybench.monitors.nvml"]


def test_there_is_no_import_cycle() -> None:
    graph = {
        module.name: {
            name
            for line, name in imported(module)
            if name in own_modules() and name != module.name and line not in lines_for_types_only(module)
        }
        for module in modules()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, "import cycle: " + " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for below in sorted(graph[name]):
                visit(below, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
    assert done == own_modules()


def test_no_handler_swallows_whatever_comes() -> None:
    """`except BaseException` may tidy up and raise again; nothing else may catch everything."""
    wrong = []
    for module in modules():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = "everything" if node.type is None else ast.unparse(node.type)
            last = node.body[-1]
            raises_again = isinstance(last, ast.Raise) and last.exc is None
            if caught in ("everything", "Exception") or (caught == "BaseException" and not raises_again):
                wrong.append(f"{module.name}:{node.lineno} catches {caught}")
    assert not wrong, "\n".join(wrong)


def test_a_function_fits_a_screen() -> None:
    long = [
        f"{module.name}.{node.name}: {size} lines"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_a_module_is_a_short_read() -> None:
    long = [f"{module.name}: {module.lines} lines" for module in modules() if module.lines > MODULE_LINES_MAX]
    assert not long, "\n".join(long)


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        module.name
        for module in modules()
        if ast.get_docstring(module.tree) is None and (module.path.name != "__init__.py" or module.tree.body)
    ]
    assert not silent, silent


def test_no_module_is_named_after_nothing() -> None:
    vague = {"util", "utils", "common", "base", "helpers", "misc", "mixins", "core"}
    assert not [module.name for module in modules() if vague & set(module.name.split("."))]


def test_nothing_waits_to_be_written() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    left = [
        f"{module.name}:{number}"
        for module in modules()
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not left, left


# The repository


def files_of_the_repository() -> list[Path]:
    """Tracked files and new ones that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


#: Places of the machines on which raybench was written, and where they got their packages.
STRAYS = re.compile(
    rb"(?<![\w.%-])/(?:work|root|home/[a-z]\w*|opt|mnt)/"
    rb"|files\.pythonhosted\.org|pypi\.org|index-url[ =]+(?!https://download\.pytorch\.org/)"
)


def test_no_file_holds_a_path_of_a_machine_or_the_host_of_a_package_registry() -> None:
    captured = ROOT / "tests" / "golden"  # bytes of real engines, as they came
    found = []
    for path in files_of_the_repository():
        if path.is_relative_to(captured) or path == Path(__file__):
            continue
        data = path.read_bytes()
        if b"\0" in data[:8000]:
            continue
        for match in STRAYS.finditer(data):
            line = data.count(b"\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line} {match[0].decode()}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_stray"),
    [
        (b"cd /work/checkout", True),
        (b"/root/.cache", True),
        (b"/home/user/runs", True),
        (b"--extra-index-url https://mirror.example/simple", True),
        (b"arm/work/c64", False),
        (b"$HOME/.ray/auth_token", False),
        (b"https://host/root/", False),
        (b"~/raybench-runs", False),
    ],
)
def test_what_counts_as_a_stray(text: bytes, is_stray: bool) -> None:
    assert bool(STRAYS.search(text)) == is_stray


def test_no_run_or_corpus_is_in_the_repository() -> None:
    kinds = {".arrows", ".parquet", ".jsonl"}
    meant = tuple(ROOT / folder for folder in ("tests/golden", "scenarios/traces", "docs/examples"))
    strays = [p for p in files_of_the_repository() if p.suffix in kinds and not any(map(p.is_relative_to, meant))]
    assert not strays
