"""Whole reports of a small run, word for word, in both languages.

The ledger is left out: digests of Parquet files hang on the version of the library that wrote them. To accept
a change that is meant, write the new text over the golden file and read the difference.
"""

from pathlib import Path

import pytest
from synthetic_run import whole_run

from raybench.analysis.merge import merge
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import write_json
from raybench.report.source import read_source
from raybench.report.text import ENGLISH, Text
from raybench.report.text_zh import CHINESE
from raybench.report.write import write_report


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    made = whole_run(tmp_path_factory.mktemp("golden") / "run")
    told = {"server_info": {"tp_size": 2, "pp_size": 4, "launch_command": "--model-path m --tp-size 2"}}
    facts = {
        "engine": "sglang",
        "version": "0.5.9",
        "kv_pool_tokens": 1_040_384,
        "prefix_cache": False,
        "raw": told,
    }
    write_json(made.arm("tp2pp4") / "facts.json", facts)
    merge(made)
    return made


def without_ledger(report: str, heading: str) -> str:
    before, _, rest = report.partition(f"## {heading}\n")
    assert rest, f"no section {heading}"
    return before + "## " + rest.split("\n## ", 1)[1]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_the_report_of_a_small_run_is_word_for_word_the_golden_one(
    run: RunDirectory, golden: Path, text: Text
) -> None:
    written = write_report(read_source(run), run.path, text)
    told = without_ledger(written.markdown.read_text(encoding="utf-8"), text.inputs)
    assert told == (golden / "report" / f"small.{text.language}.md").read_text(encoding="utf-8")
