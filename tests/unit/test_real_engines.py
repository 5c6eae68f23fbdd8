"""tools/engines/real_engines.py: what it reads from /metrics, and the comparison of both books."""

from pathlib import Path

import pyarrow as pa
from real_engines import ROOT, Server, Tally, counter, difference, pointed_at, reconciliation, recorded

METRICS = """\
# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{is_streaming="false",model_name="tiny"} 19.0
sglang:prompt_tokens_total{is_streaming="true",model_name="tiny {x}"} 1.2e+03
sglang:prompt_tokens_total_created{model_name="tiny"} 1.7e+09
sglang:cached_prompt_tokens_total{model_name="tiny"} 5.0
llamacpp:tokens_predicted_total 800
"""


def test_a_counter_is_the_sum_of_its_own_series() -> None:
    assert counter(METRICS, "sglang:prompt_tokens_total") == 1219
    assert counter(METRICS, "llamacpp:tokens_predicted_total") == 800
    assert counter(METRICS, "sglang:num_requests_total") == 0


def test_the_records_count_failed_requests_with_the_tokens_that_came() -> None:
    rows = pa.table(
        {
            "input_tokens": [512, None],
            "output_tokens": [32, 0],
            "partial_output_tokens": [None, 7],
            "cached_tokens": [3, None],
        }
    )
    assert recorded(rows) == Tally(2, 512, 39, 3)


def test_a_sum_that_differs_is_named_and_one_that_is_not_counted_is_not() -> None:
    server, records = Tally(None, 512, 40, 3), Tally(2, 512, 39, 3)
    assert difference(server, records) == ["output_tokens"]
    lines = reconciliation("engine", server, records).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["counted", "equal", "DIFFERENT", "equal"]


def test_a_scenario_is_copied_only_for_another_address(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios" / "local_sglang.yaml"
    assert pointed_at(scenario, Server("sglang", "http://127.0.0.1:18010", tmp_path), tmp_path) == scenario
    copy = pointed_at(scenario, Server("sglang", "http://127.0.0.1:4711", tmp_path), tmp_path)
    assert "url: http://127.0.0.1:4711\n" in copy.read_text()
