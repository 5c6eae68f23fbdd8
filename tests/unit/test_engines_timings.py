"""What answers say of their engine's speed, in every dialect that says it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raybench.engines import ENGINES
from raybench.engines.contract import Answer, RequestShape
from raybench.scenario.schema import Route

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}


def read(engine: str, route: Route, body: dict[str, Any]) -> Answer:
    shape = RequestShape(route, 10, 8, stream=False, prompt="text")
    decoder = ENGINES[engine].decoder(shape, event_bytes_max=1 << 20)
    decoder.feed(orjson.dumps(body), 1)
    return decoder.finish(complete=True)


def test_llamacpp_and_ninfer_tell_milliseconds_and_drafts() -> None:
    usage = {"prompt_tokens": 23, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 0}}
    timings = {"cache_n": 0, "prompt_n": 23, "prompt_ms": 4.0, "predicted_n": 8, "predicted_ms": 150.0}
    drafts = {"draft_n": 9, "draft_n_accepted": 5}
    body = {"id": "chatcmpl-17", "choices": [CHOICE], "usage": usage, "timings": timings | drafts}
    answer = read("llamacpp", "chat", body)
    assert (answer.engine_prefill_s, answer.engine_decode_s) == (0.004, 0.15)
    assert (answer.draft_tokens, answer.accepted_tokens, answer.response_id) == (9, 5, "chatcmpl-17")


def test_sglang_tells_stamps_of_its_scheduler_with_metrics_on() -> None:
    """Values of a captured answer, whose decode_throughput says 75.98 tokens/s."""
    meta = {
        "id": "r",
        "finish_reason": {"type": "length", "length": 150},
        "prompt_tokens": 100,
        "completion_tokens": 150,
        "cached_tokens": 0,
        "forward_entry_time": 1796055708.3966603,
        "prefill_finished_time": 1796055708.4361205,
        "e2e_latency": 2.0098200939996786,
        "first_token_latency": 0.04881552000006195,
        "spec_verify_ct": 50,
        "spec_num_proposed_drafts": 200,
        "spec_num_correct_drafts": 100,
    }
    answer = read("sglang", "generate", {"text": "x", "meta_info": meta})
    assert answer.engine_prefill_s == pytest.approx(0.03946, abs=1e-4)
    assert answer.engine_decode_s is not None
    assert 149 / answer.engine_decode_s == pytest.approx(75.98, abs=0.01)
    assert (answer.draft_tokens, answer.accepted_tokens, answer.verify_rounds) == (200, 100, 50)


def test_vllm_tells_the_gap_between_tokens() -> None:
    metrics = {
        "queue_time_ms": 10.0,
        "time_to_first_token_ms": 40.0,
        "mean_itl_ms": 5.0,
        "speculative_decoding": {"num_draft_tokens": 12, "num_accepted_draft_tokens": 6},
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 21}
    answer = read("vllm", "chat", {"choices": [CHOICE], "usage": usage, "metrics": metrics})
    assert (answer.engine_prefill_s, answer.engine_ttft_s) == (0.04, 0.05)
    assert answer.engine_decode_s == pytest.approx(0.1)
    assert (answer.draft_tokens, answer.accepted_tokens) == (12, 6)


def test_a_server_that_tells_nothing_leaves_all_of_it_unknown() -> None:
    answer = read("openai", "chat", {"choices": [CHOICE], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    told = (answer.engine_prefill_s, answer.engine_decode_s, answer.draft_tokens, answer.verify_rounds)
    assert told == (None, None, None, None)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_tool_call_is_put_together_from_its_pieces(streamed: bool) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    if not streamed:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        answer = read("llamacpp", "chat", {"choices": [CHOICE | {"message": message}]})
    else:
        deltas = [
            {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]},
        ]
        shape = RequestShape("chat", 10, 8, prompt="text")
        decoder = ENGINES["llamacpp"].decoder(shape, event_bytes_max=1 << 20)
        for delta in deltas:
            decoder.feed(b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": delta}]}) + b"\n\n", 1)
        decoder.feed(b"data: [DONE]\n\n", 2)
        answer = decoder.finish(complete=True)
    assert [(one.name, one.arguments) for one in answer.tool_calls] == [("f", '{"a": 1}')]
    assert not answer.no_answer_text
