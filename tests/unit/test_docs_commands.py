"""Every command line in documents and shipped files exists: raybench's with its options, make's with its target.

Nothing is executed. Other commands (ray, kubectl, sbatch) are not looked at.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from raybench.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHIPPED = [
    ROOT / "Makefile",
    *(
        path
        for folder in ("scenarios", "clusters", "baselines")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
    ),
    *sorted((ROOT / "clusters").rglob("*.sh")),
]
FENCED = re.compile(r"(?ms)^```[a-z]*\n(.*?)^```")
INDENTED = re.compile(r"(?m)^ {4}(\S.*)$")
#: How a command line begins: variables, and where the program lies.
BEGIN = re.compile(r"(?:[A-Z_]+=\S+ )*(?:\S*/)?raybench (.*)$")
#: The same inside a comment, a recipe, a script or an entrypoint.
BEGIN_INSIDE = re.compile(r"(?:/|#   |-m |@\]\}\" |`)raybench ([a-z-][^`\n]*)")


@dataclass(frozen=True)
class Call:
    """What stands behind `raybench`. whole: it is meant to be typed as it is, and not a mention in a sentence."""

    text: str
    whole: bool

    @property
    def arguments(self) -> list[str]:
        text = re.split(r"\s+#\s|\s{3,}|;", self.text)[0]
        return shlex.split(re.sub(r"[\[\]]|\.\.\.", "", text))


def calls(path: Path) -> Iterator[Call]:
    text = re.sub(r"\s*\\\n\s*", " ", path.read_text(encoding="utf-8"))
    if path.suffix != ".md":
        yield from (Call(match, whole=False) for match in BEGIN_INSIDE.findall(text))
        return
    sentences = FENCED.sub("", text)
    for line in [*"\n".join(FENCED.findall(text)).splitlines(), *INDENTED.findall(sentences)]:
        if begun := BEGIN.match(line.strip()):
            yield Call(begun[1], whole=True)
    for code in re.findall(r"`([^`\n]+)`", sentences):
        if begun := BEGIN.match(code):
            yield Call(begun[1], whole=False)


def wrong(call: Call) -> str | None:
    """Why the command line would refuse a call; None when it would not. Of values only files are looked at."""
    command: Any = typer.main.get_command(app)
    arguments = call.arguments
    while (below := getattr(command, "commands", None)) is not None:
        if arguments == ["--version"]:
            return None
        if not arguments or arguments[0] not in below:
            return f"no such command: {' '.join(arguments)}"
        command = below[arguments.pop(0)]
    options = {name: one for one in command.params if one.param_type_name == "option" for name in one.opts}
    places = [one for one in command.params if one.param_type_name == "argument"]
    given: set[str] = set()
    values: list[str] = []
    files: list[str] = []
    while arguments:
        one = arguments.pop(0)
        if not one.startswith("-"):
            values.append(one)
            continue
        name, equals, value = one.partition("=")
        if name not in options:
            return f"no such option: {name}"
        given.add(name)
        if not options[name].is_flag:
            if not equals and not arguments and call.whole:
                return f"no value for {name}"
            files.append(value if equals or not arguments else arguments.pop(0))
    if len(values) > len(places) and all(place.nargs == 1 for place in places):
        return f"more than is taken: {' '.join(values)}"
    needed = sum(place.required for place in places)
    lacking = [name for name, one in options.items() if one.required and not given & set(one.opts)]
    if call.whole and (len(values) < needed or lacking):
        return f"something is missing: {needed} arguments{''.join(f', {name}' for name in lacking)}"
    files = [name for name in files + values if re.match(r"(?:scenarios|clusters|baselines)/", name)]
    missing = [name for name in files if not (ROOT / name).exists()]
    return f"no such file: {', '.join(missing)}" if missing else None


ALL = [(path, call) for path in [*DOCUMENTS, *SHIPPED] for call in calls(path)]


def test_the_calls_are_found_in_every_kind_of_file() -> None:
    found = {(path.name, " ".join(call.arguments)) for path, call in ALL}
    assert ("README.md", "plan mine.yaml") in found  # a block, with a comment behind it
    assert ("README.md", "submit --no-wait") in found  # a cell of a table, with something left out
    assert ("Makefile", "submit scenarios/demo_always_hit.yaml") in found
    assert ("slurm.sh", "run $scenario --runs-dir runs") in found
    assert ("rayjob.yaml", "run /scenario/scenario.yaml --runs-dir /runs") in found
    assert ("16k.yaml", "submit scenarios/16k.yaml --cluster clusters/onprem.yaml") in found


@pytest.mark.parametrize(("path", "call"), ALL, ids=lambda one: one.name if isinstance(one, Path) else one.text)
def test_every_command_line_would_run(path: Path, call: Call) -> None:
    assert wrong(call) is None, f"{path.name}: raybench {call.text}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("submitt x.yaml", "no such command"),
        ("submit x.yaml --resum runs/R", "--resum"),
        ("plan a.yaml b.yaml", "more than is taken"),
        ("probe a.yaml --grid 1k", "--arm"),
        ("submit a.yaml --cluster", "no value"),
        ("submit a.yaml --cluster clusters/none.yaml", "no such file"),
        ("compare", "something is missing"),
        ("submit scenarios/none.yaml", "no such file"),
        ("corpus make x", "no such command"),
    ],
)
def test_a_command_line_that_would_not_run_is_found(text: str, problem: str) -> None:
    assert problem in str(wrong(Call(text, whole=True)))


TARGETS = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?m)(?:^\s*|`)make ([a-z][a-z-]*)", text))
    assert named <= TARGETS


def test_the_example_for_kuberay_is_a_rayjob_with_a_place_for_each_role() -> None:
    job = yaml.safe_load((ROOT / "clusters" / "kuberay" / "rayjob.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert [group["labels"]["raybench"] for group in groups] == ["head", "client", "target"]
    assert len({group["template"]["spec"]["containers"][0]["image"] for group in groups}) == 1


def test_the_script_for_slurm_is_one_that_bash_can_read() -> None:
    read = subprocess.run(
        ["bash", "-n", ROOT / "clusters" / "slurm.sh"], capture_output=True, text=True, check=False
    )
    assert (read.returncode, read.stderr) == (0, "")
