"""What a run works with: corpus, traces and prompts, read where the coordinator runs and told in the manifest.

A resumed run has to work with what it began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from raybench.corpus.prompts import Prompt, digests, read_prompt_sets
from raybench.corpus.rendered import Rendered, render_ids
from raybench.corpus.tokens import TokenCorpus, load_corpus
from raybench.deploy.digests import digest_input
from raybench.engines import ENGINES
from raybench.engines.contract import RequestShape
from raybench.errors import ConfigError, ConfigProblem, RunDirectoryError
from raybench.scenario.schema import Scenario
from raybench.scenario.trace import Trace, read_traces


@dataclass(frozen=True)
class Inputs:
    """traces, prompt_sets: by workload, of those that have one. corpus: None if every workload is a prompt set.

    rendered: what bodies are cut from, for the kinds of prompt that the scenario's arms need.
    """

    corpus: TokenCorpus | None
    rendered: Mapping[str, Rendered]
    traces: Mapping[str, Trace]
    prompt_sets: Mapping[str, tuple[Prompt, ...]]

    @classmethod
    def read(cls, scenario: Scenario, base: Path) -> Self:
        """base: where the scenario's relative paths start. Blocks. Raises ConfigError for what cannot be sent."""
        corpus = None if scenario.corpus is None else load_corpus(scenario.corpus, base)
        return cls(
            corpus, _rendered(scenario, corpus), read_traces(scenario, base), read_prompt_sets(scenario, base)
        )

    def told(self, scenario: Scenario, base: Path) -> dict[str, object]:
        """What the manifest says of them: names, sizes and digests."""
        traces = {w.name: digest_input(base / w.trace.path) for w in scenario.workloads if w.trace is not None}
        prompt_sets = {workload: digests(prompts) for workload, prompts in self.prompt_sets.items()}
        told: dict[str, object] = {"traces": traces, "prompt_sets": prompt_sets}
        if self.corpus is not None:
            told["corpus"] = _corpus_told(self.corpus, scenario, base)
        return told


def refuse_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A resumed run replays and sends what it began with. Raises RunDirectoryError naming what is another now.

    before: the run's manifest, which says nothing of inputs when the run is new. now: `Inputs.told`.
    """
    if "corpus" in before:
        _refuse(f"the corpus {before['corpus']['name']}", "corpora", before["corpus"], now["corpus"])
    for workload, was in before.get("traces", {}).items():
        _refuse(f"the trace of {workload}", "traces", was, now["traces"][workload])
    for workload, entries in before.get("prompt_sets", {}).items():
        for was, prompt in zip(entries, now["prompt_sets"][workload], strict=True):
            _refuse(f"prompt {prompt['name']} of {workload}", "prompts", was, prompt)


def _refuse(what: str, kind: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if was["sha256"] != now["sha256"]:
        raise RunDirectoryError(
            f"{what} has changed since the run began (sha256 {was['sha256'][:12]}, now {now['sha256'][:12]});"
            f" points of two {kind} are not one matrix: put the old file back, or start a new run"
        )


def _corpus_told(corpus: TokenCorpus, scenario: Scenario, base: Path) -> dict[str, object]:
    path = None if scenario.corpus is None else scenario.corpus.path
    file = None if path is None else digest_input(base / path)
    return {"name": corpus.name, "tokens": corpus.tokens, "sha256": corpus.sha256, "file": file}


def _rendered(scenario: Scenario, corpus: TokenCorpus | None) -> dict[str, Rendered]:
    """Nothing without a corpus.

    Raises ConfigError when an arm needs text and the corpus has only ids.
    """
    if corpus is None:
        return {}
    kinds = set()
    for name, arm in scenario.arms.items():
        if all(workload.prompt_set is not None for workload in scenario.workloads_of(name)):
            continue
        shape = RequestShape(arm.effective_route, 1, 1)
        kind = ENGINES[arm.engine].template(shape).prompt
        if kind == "text" and corpus.text is None:
            raise ConfigError(
                "corpus",
                ConfigProblem(
                    f"arm {name} sends text ({arm.effective_route}), the corpus {corpus.name} has only token ids",
                    path="corpus",
                    way_out="build one with `raybench corpus build`, or use the route completions or generate",
                ),
            )
        kinds.add(kind)
    rendered = {"ids": render_ids(corpus.ids)} if "ids" in kinds else {}
    if "text" in kinds and corpus.text is not None:
        rendered["text"] = corpus.text
    return rendered
