"""The documentation is complete: every command, option, exit code and shipped file is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from raybench import errors
from raybench.cli import app
from raybench.engines import ENGINES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[tuple[str, object]]:
    """(name, command) of every command that a user sees, `corpus build` included."""
    root = typer.main.get_command(app)
    found = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        if below is not None:
            found += [(f"{name} {inner}", one) for inner, one in below.items()]
        elif not command.hidden:
            found.append((name, command))
    return found


def options() -> list[tuple[str, tuple[str, ...]]]:
    """(command, its spellings) of every option that a user sees."""
    return [
        (name, tuple(parameter.opts))
        for name, command in commands()
        for parameter in command.params  # type: ignore[attr-defined]
        if parameter.param_type_name == "option" and not parameter.hidden and "--help" not in parameter.opts
    ]


def test_there_are_commands_and_options_to_look_for() -> None:
    assert {"check", "plan", "submit", "run", "corpus build"} <= {name for name, _ in commands()}
    assert ("submit", ("--cluster",)) in options()


@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_every_command_is_documented(command: str) -> None:
    assert re.search(rf"`(?:raybench )?{command}\b", TEXT), f"`raybench {command}` is in no document"


@pytest.mark.parametrize(("command", "spellings"), options())
def test_every_option_is_documented(command: str, spellings: tuple[str, ...]) -> None:
    found = [name for name in spellings if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", TEXT)]
    assert found, f"{' / '.join(spellings)} of `raybench {command}` is in no document"


@pytest.mark.parametrize(("command", "spellings"), options())
def test_every_option_has_help(command: str, spellings: tuple[str, ...]) -> None:
    parameters = dict(commands())[command].params  # type: ignore[attr-defined]
    assert [p.help for p in parameters if tuple(p.opts) == spellings and p.help]


@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_every_command_has_help(command: str) -> None:
    assert (dict(commands())[command].help or "").strip().endswith((".", ")"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.startswith("EXIT_")])
def test_every_exit_code_is_documented(name: str) -> None:
    code = getattr(errors, name)
    sentence = re.search(r"Exit codes: (.*?)(?:\n\n|$)", README, re.DOTALL)
    assert sentence is not None, "the README has no sentence that begins with `Exit codes:`"
    assert re.search(rf"(?:^|; ){code} \w", sentence[1]), f"exit code {code} ({name}) is not in the README"


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_every_engine_is_documented(engine: str) -> None:
    assert re.search(rf"\b{engine}\b", TEXT)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readme_opens_with_the_two_commands(target: str) -> None:
    assert f"make {target}" in README[: len(README) // 2]


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text()))
    assert set(re.findall(r"`make ([a-z][a-z-]*)", TEXT)) <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    rooms = "|".join(sorted(folder.name for folder in (ROOT / "raybench").iterdir() if folder.is_dir()))
    folders = rf"scenarios|clusters|docs|tools|tests|benchmarks|{rooms}"
    named = set(re.findall(rf"(?<![\w/])((?:{folders})/[\w./-]+\.(?:yaml|md|py|sh))\b", text))
    links = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text))
    missing = [name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "raybench"))]
    missing += [link for link in links if not (path.parent / link).exists()]
    assert not missing, f"{path.name} names {missing}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_document_has_one_title(path: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
    titles = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(titles) == 1, titles
