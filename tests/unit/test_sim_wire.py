"""What the simulated engine's bytes say of an answer, and which bodies it takes.

Their form is compared with the real engine's in tests/sim/test_sim_matches_captures.py.
"""

from itertools import pairwise

import orjson
import pytest
from sim_rehearsal import ask, make_engine, prompt

from raybench.scenario.sim_block import Sim
from raybench.sim.asking import Refused, read_chat, read_completion, read_generate, read_object
from raybench.sim.clock import VirtualClock
from raybench.sim.generate_wire import DONE, GenerateWire
from raybench.sim.openai_wire import OpenAIWire
from raybench.sim.profiles import make_profile

PROFILE = make_profile(Sim())


def events(data: bytes) -> list[dict]:
    texts = [event.removeprefix(b"data: ") for event in data.split(b"\n\n") if event]
    assert texts[-1] == b"[DONE]"
    return [orjson.loads(text) for text in texts[:-1]]


def stream(sim: Sim | None = None, output: int = 8, begin: bool = False) -> bytes:
    """A whole `/generate` stream of the simulated engine; `begin` renders only what is new."""
    engine = make_engine(sim)
    wire = GenerateWire(engine.ring, VirtualClock(1.0), engine.faults)
    request = ask("rid-1", prompt(1, 100), output)
    engine.submit(request, 0.0)
    data, shown = b"", 0
    while (end := engine.next_time) is not None:
        if request in engine.advance(end):
            data += wire.event(request, shown if begin else 0, first=shown == 0)
            shown = request.output
    return data + DONE


def test_the_speculation_figures_fit_together() -> None:
    told = events(stream(Sim(profile="tp8_eagle3"), 64))[-1]["meta_info"]
    assert told["spec_accept_length"] == 64 / told["spec_verify_ct"]
    assert sum(told["spec_correct_drafts_histogram"]) == told["spec_verify_ct"]
    assert told["spec_num_proposed_drafts"] == 4 * told["spec_verify_ct"]


def test_events_are_cumulative_or_hold_only_what_is_new() -> None:
    whole, parts = events(stream()), events(stream(begin=True))
    assert whole[-1]["text"] == "".join(event["text"] for event in parts)
    assert whole[-1]["output_ids"] == [token for event in parts for token in event["output_ids"]]
    counts = [event["meta_info"]["completion_tokens"] for event in whole]
    assert counts == [event["meta_info"]["completion_tokens"] for event in parts]
    assert counts[-1] == len(whole[-1]["output_ids"]) == 8
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in pairwise(whole))


def test_reported_times_are_wall_times() -> None:
    engine = make_engine(Sim(profile="tp2pp4"))
    wire = GenerateWire(engine.ring, VirtualClock(50.0, monotonic=lambda: 0.0, unix=lambda: 1000.0), engine.faults)
    request = ask("rid-1", prompt(1, 16_384), 11)
    engine.submit(request, 100.0)
    while (end := engine.next_time) is not None:
        engine.advance(end)
    meta = orjson.loads(wire.body(request))["meta_info"]
    assert meta["request_received_ts"] == pytest.approx(1002.0)
    assert meta["first_token_latency"] == pytest.approx((request.first_token_at - 100.0) / 50)
    assert meta["e2e_latency"] == pytest.approx((request.finished_at - 100.0) / 50)
    assert meta["decode_throughput"] == pytest.approx(50 / engine.profile.decode_s(1))


def openai(kind: str, data: dict, sim: Sim | None = None) -> tuple[bytes, OpenAIWire]:
    read = read_chat if kind == "chat" else read_completion
    asked = read(data, make_profile(sim or Sim()))
    engine = make_engine(sim)
    wire = OpenAIWire(kind, asked, engine.ring, engine.faults, 1_796_056_626)
    engine.submit(asked.request, 0.0)
    chunks, shown = b"", 0
    while (end := engine.next_time) is not None:
        if asked.request in engine.advance(end):
            chunks += wire.chunks(shown)
            shown = asked.request.output
    return chunks + DONE, wire


COMMON = {"model": "tiny", "max_tokens": 8, "temperature": 0, "ignore_eos": True, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}


WEATHER = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [{"function": {"name": "f"}}]}
SUM = {"messages": [{"role": "user", "content": "What is 12 * 12?"}]}


def test_a_question_that_is_understood_is_answered_and_ended_alike_with_and_without_a_stream() -> None:
    free = COMMON | {"ignore_eos": False, "max_tokens": 64, "rid": "one"}
    for data, reason in ((SUM, "stop"), (WEATHER, "tool_calls")):
        told = []
        for stream in (True, False):
            data_sent = free | data | {"stream": stream} | USAGE
            chunks, wire = openai("chat", data_sent, Sim(profile="tp8_eagle3"))
            told.append(read_whole(chunks) if stream else read_whole_body(wire.answer()))
        assert told[0] == told[1]
        reasoning, content, calls, ended, usage = told[0]
        assert (reasoning, ended) == ("Let me see. Simple enough.", reason)
        assert (content, [call["function"]["name"] for call in calls]) in (("144", []), ("", ["f"]))
        assert usage["reasoning_tokens"] == 5
        assert usage["completion_tokens"] < 64


def test_a_load_that_may_not_end_early_is_never_answered() -> None:
    chunks, _ = openai("chat", COMMON | SUM | USAGE)
    _, content, _, ended, usage = read_whole(chunks)
    assert (content != "144", ended, usage["completion_tokens"]) == (True, "length", 8)


def test_an_answer_that_is_cut_by_its_budget_calls_no_tool() -> None:
    short = COMMON | USAGE | WEATHER | {"ignore_eos": False, "max_tokens": 6}
    chunks, _ = openai("chat", short, Sim(profile="tp8_eagle3"))
    assert read_whole(chunks)[1:4] == ("", [], "length")


def read_whole(chunks: bytes) -> tuple[str, str, list, str, dict]:
    choices = [choice for event in events(chunks) for choice in event["choices"]]
    deltas = [choice["delta"] for choice in choices]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    texts = ["".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning_content", "content")]
    return texts[0], texts[1], calls, choices[-1]["finish_reason"], events(chunks)[-1]["usage"]


def read_whole_body(data: bytes) -> tuple[str, str, list, str, dict]:
    body = orjson.loads(data)
    [choice] = body["choices"]
    message = choice["message"]
    said = (message["reasoning_content"] or "", message["content"] or "", message.get("tool_calls") or [])
    return *said, choice["finish_reason"], body["usage"]


def refused(read: object, data: dict) -> Refused:
    with pytest.raises(Refused) as caught:
        read(data, PROFILE)
    return caught.value


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"input_ids": "abc"}', b'{"input_ids": [1, "a"]}', b'{"input_ids": [-1]}']
)
def test_a_body_of_the_wrong_form_is_refused_before_its_values(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_generate(read_object(data), PROFILE)
    assert caught.value.shape == "validation"


@pytest.mark.parametrize("new_tokens", [-1, "8", 1.5, True])
def test_an_output_length_that_is_no_whole_number_is_refused(new_tokens: object) -> None:
    refused(read_generate, {"input_ids": [1], "sampling_params": {"max_new_tokens": new_tokens}})


def test_defaults_are_those_of_sglang() -> None:
    request = read_generate({"input_ids": [1, 2, 3]}, PROFILE).request
    assert (request.max_new_tokens, request.ignore_eos, request.stream) == (128, False, False)
    assert read_completion({"prompt": [1, 2, 3]}, PROFILE).request.max_new_tokens == 16
