"""The simulated engine's bytes beside those of SGLang 0.5.23: same keys, same order, same kinds of values."""

from itertools import pairwise

import orjson
import pytest
from sim_captures import GOLDEN, body_of, main
from sim_rehearsal import answer, ask, make_engine, prompt

from raybench.scenario.sim_block import Sim
from raybench.sim import answers, control
from raybench.sim.asking import Refused, read_chat, read_completion, read_generate, wants_stream
from raybench.sim.clock import VirtualClock
from raybench.sim.generate_wire import DONE, GenerateWire, error_event
from raybench.sim.openai_wire import OpenAIWire
from raybench.sim.profiles import make_profile
from raybench.sim.replies import message_reply, object_reply
from raybench.sim.request import Finish

PROFILE = make_profile(Sim())


def events(data: bytes) -> list[dict]:
    texts = [event.removeprefix(b"data: ") for event in data.split(b"\n\n") if event]
    assert texts[-1] == b"[DONE]"
    return [orjson.loads(text) for text in texts[:-1]]


def stream(sim: Sim | None = None, output: int = 8, begin: bool = False, **fields: object) -> bytes:
    """A whole `/generate` stream of the simulated engine; `begin` renders only what is new."""
    engine = make_engine(sim)
    clock = VirtualClock(1.0)
    wire = GenerateWire(engine.ring, clock, engine.faults)
    request = ask("rid-1", prompt(1, 100), output, **fields)
    engine.submit(request, 0.0)
    data, shown = b"", 0
    while (end := engine.next_time) is not None:
        if request in engine.advance(end):
            data += wire.event(request, shown if begin else 0, first=shown == 0)
            shown = request.output
    return data + DONE


def kinds(value: object) -> object:
    """Keys in order, and the kind of each value; whole numbers and fractions are one kind."""
    if isinstance(value, dict):
        return [(key, kinds(item)) for key, item in value.items()]
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_each_event_of_a_stream_has_the_keys_of_the_real_engine_in_their_order() -> None:
    ours, real = events(stream()), events(main("11_generate_stream_ids"))
    for at in (0, 1, -1):
        assert kinds(ours[at]) == kinds(real[at])


def test_the_plain_answer_has_the_keys_of_the_real_engine_in_their_order() -> None:
    engine = make_engine()
    wire = GenerateWire(engine.ring, VirtualClock(1.0), engine.faults)
    ours = orjson.loads(wire.body(answer(engine, ask("rid-1", prompt(1, 100), 8, stream=False))))
    assert kinds(ours) == kinds(orjson.loads(main("13_generate_plain_ids")))


def test_a_hit_is_given_by_tier_as_the_real_engine_gives_it() -> None:
    engine = make_engine()
    wire = GenerateWire(engine.ring, VirtualClock(1.0), engine.faults)
    answer(engine, ask("cold", prompt(1, 100)))
    warm = answer(engine, ask("warm", prompt(1, 100)))
    ours = orjson.loads(wire.body(warm))["meta_info"]
    real = events(main("28_cache_2_warm"))[-1]["meta_info"]
    assert kinds(ours["cached_tokens_details"]) == kinds(real["cached_tokens_details"])
    assert ours["cached_tokens_details"] == {"device": 96, "host": 0}


def test_the_speculation_figures_are_those_of_the_real_engine() -> None:
    ours = events(stream(Sim(profile="tp8_eagle3"), 64))[-1]["meta_info"]
    real = events(body_of("captures/sglang-0.5.17-gpu/spec/02_first.resp"))[-1]["meta_info"]
    names = [key for key in ours if key.startswith("spec_")]
    assert len(names) == 6
    # 0.5.17 also has three older names of the same numbers.
    assert [key for key in real if key in names] == names
    assert ours["spec_accept_length"] == 64 / ours["spec_verify_ct"]
    assert sum(ours["spec_correct_drafts_histogram"]) == ours["spec_verify_ct"]
    assert ours["spec_num_proposed_drafts"] == 4 * ours["spec_verify_ct"]


def test_events_are_cumulative_or_hold_only_what_is_new() -> None:
    whole, parts = events(stream()), events(stream(begin=True))
    assert whole[-1]["text"] == "".join(event["text"] for event in parts)
    assert whole[-1]["output_ids"] == [token for event in parts for token in event["output_ids"]]
    counts = [event["meta_info"]["completion_tokens"] for event in whole]
    assert counts == [event["meta_info"]["completion_tokens"] for event in parts]
    assert counts[-1] == len(whole[-1]["output_ids"]) == 8
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in pairwise(whole))


def test_an_abort_ends_the_stream_as_in_the_real_engine() -> None:
    engine = make_engine()
    wire = GenerateWire(engine.ring, VirtualClock(1.0), engine.faults)
    request = ask("rid-1", prompt(1, 100), 50)
    engine.submit(request, 0.0)
    engine.advance(0.05)
    engine.abort("rid-1", 0.05)
    ours = orjson.loads(wire.body(request, plain=False))
    real = events(main("39_stream_aborted_by_rid"))[-1]
    assert kinds(ours) == kinds(real)
    assert ours["meta_info"]["finish_reason"] == real["meta_info"]["finish_reason"]


def test_a_request_that_ends_before_its_first_token_has_the_short_form() -> None:
    engine = make_engine()
    wire = GenerateWire(engine.ring, VirtualClock(1.0), engine.faults)
    request = ask("rid-1", prompt(1, 100), 50)
    engine.submit(request, 0.0)
    engine.abort("rid-1", 0.0)
    ours = orjson.loads(wire.body(request))
    real = events(body_of("captures/sglang-0.5.23-cpu/queue-limit/02_queue_4.resp"))[0]
    assert list(ours["meta_info"]) == list(real["meta_info"])
    assert (ours["text"], ours["output_ids"]) == ("", [])
    assert request.finish == Finish("abort", "Aborted")


def test_o_s5_a_full_queue_is_refused_as_by_the_real_engine() -> None:
    """Two run, four wait: the seventh is told so in the only event of a stream that begins with status 200."""
    engine = make_engine(Sim(max_running_requests=2, max_queued_requests=4))
    wire = GenerateWire(engine.ring, VirtualClock(1.0), engine.faults)
    for k in range(2):
        engine.submit(ask(f"rid-{k}", prompt(k, 100), 50), 0.0)
    while len(engine.running) < 2:
        end = engine.next_time
        assert end is not None
        engine.advance(end)
    waiting = [ask(f"rid-{k}", prompt(k, 100), 50) for k in range(2, 7)]
    for request in waiting:
        engine.submit(request, engine.now)
    assert [request.finish is not None for request in waiting] == [False] * 4 + [True]
    ours = orjson.loads(wire.body(waiting[-1]))
    real = events(body_of("captures/sglang-0.5.23-cpu/queue-limit/02_queue_4.resp"))[0]
    assert orjson.dumps(ours["meta_info"]["finish_reason"]) == orjson.dumps(real["meta_info"]["finish_reason"])
    assert kinds(ours) == kinds(real)


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
    asked = read(orjson.dumps(data), make_profile(sim or Sim()))
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
CHAT = COMMON | {"messages": [{"role": "user", "content": "Streast bain troud, plou 12"}]}
COMPLETION = COMMON | {"prompt": "Streast bain troud, plou 12"}
USAGE = {"stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("kind", "data", "capture"),
    [
        ("chat", CHAT | USAGE, "16_chat_stream_usage"),
        ("chat", CHAT, "18_chat_stream_no_usage"),
        ("completion", COMPLETION | USAGE, "20_completions_stream_usage"),
    ],
)
def test_the_chunks_of_the_openai_routes_have_the_shape_of_the_real_ones(
    kind: str, data: dict, capture: str
) -> None:
    ours, real = events(openai(kind, data)[0]), events(main(capture))
    for at in (0, 1, -2, -1):
        assert kinds(ours[at]) == kinds(real[at])
    text = "".join(c.get("text") or c.get("delta", {}).get("content") or "" for e in ours for c in e["choices"])
    assert text


def test_continuous_usage_stands_in_every_chunk_of_a_chat_that_has_text() -> None:
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    ours = events(openai("chat", CHAT | options)[0])
    real = events(main("17_chat_stream_continuous_usage"))
    assert kinds(ours[1]["usage"]) == kinds(real[1]["usage"])
    assert [event["usage"]["completion_tokens"] for event in ours[1:-2]] == list(range(1, 9))


@pytest.mark.parametrize(
    ("kind", "data", "capture"),
    [
        ("chat", CHAT, "19_chat_plain"),
        ("completion", COMPLETION, "22_completions_plain"),
    ],
)
def test_the_plain_answers_of_the_openai_routes_have_the_shape_of_the_real_ones(
    kind: str, data: dict, capture: str
) -> None:
    _, wire = openai(kind, data | {"stream": False})
    ours, real = orjson.loads(wire.answer()), orjson.loads(main(capture))
    assert {key: kinds(value) for key, value in ours.items() if key != "choices"} == {
        key: kinds(value) for key, value in real.items() if key != "choices"
    }
    assert list(ours) == list(real)
    assert list(ours["choices"][0]) == list(real["choices"][0])


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
        read(orjson.dumps(data), PROFILE)
    return caught.value


def test_errors_have_the_words_of_the_real_engine() -> None:
    too_long = refused(read_generate, {"input_ids": [5] * 32_778, "sampling_params": {"max_new_tokens": 8}})
    assert message_reply(too_long.message).body == body_of("sim/42_error_too_long_plain.resp")
    assert error_event(too_long.message) + DONE == main("43_error_too_long_stream")
    sampling = {"max_new_tokens": 64}
    with_output = refused(read_generate, {"input_ids": [5] * 32_764, "sampling_params": sampling})
    assert message_reply(with_output.message).body == body_of("sim/44_error_too_long_with_output.resp")
    nothing = refused(read_generate, {"sampling_params": {"max_new_tokens": 8}})
    assert message_reply(nothing.message).body == body_of("sim/46_error_no_input.resp")
    bad = refused(read_generate, {"input_ids": [1, 2], "sampling_params": {"temperature": -1}})
    assert message_reply(bad.message).body == body_of("sim/48_error_bad_sampling.resp")


def test_an_error_of_the_openai_routes_has_the_form_of_the_real_one() -> None:
    chat = refused(read_chat, {"messages": [{"role": "user", "content": "x" * 300_000}], "max_tokens": 1})
    ours = orjson.loads(object_reply(chat.message, "BadRequestError").body)
    real = orjson.loads(body_of("sim/45_error_too_long_chat.resp"))
    assert kinds(ours) == kinds(real)
    assert (ours["object"], ours["type"], ours["code"]) == (real["object"], real["type"], real["code"])


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"input_ids": "abc"}', b'{"input_ids": [1, "a"]}', b'{"input_ids": [-1]}']
)
def test_a_body_of_the_wrong_form_is_refused_before_its_values(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read_generate(data, PROFILE)
    assert caught.value.shape == "validation"


@pytest.mark.parametrize("new_tokens", [-1, "8", 1.5, True])
def test_an_output_length_that_is_no_whole_number_is_refused(new_tokens: object) -> None:
    refused(read_generate, {"input_ids": [1], "sampling_params": {"max_new_tokens": new_tokens}})


def test_defaults_are_those_of_sglang() -> None:
    request = read_generate(orjson.dumps({"input_ids": [1, 2, 3]}), PROFILE).request
    assert (request.max_new_tokens, request.ignore_eos, request.stream) == (128, False, False)
    assert read_completion(orjson.dumps({"prompt": [1, 2, 3]}), PROFILE).request.max_new_tokens == 16
    assert wants_stream(b'{"stream": true}')


def test_the_replies_to_a_flush_are_those_of_the_real_engine() -> None:
    assert control.FLUSHED.encode() == main("09_flush_idle")
    assert control.FLUSH_FAILED.encode() == main("34_flush_busy")
    assert control.FLUSH_TIMED_OUT.encode() == main("36_flush_busy_timeout")


def test_a_stream_is_announced_with_the_content_type_of_the_real_engine() -> None:
    raw = (GOLDEN / "captures/sglang-0.5.23-cpu/main/11_generate_stream_ids.resp").read_bytes()
    assert f"content-type: {answers.EVENT_STREAM['Content-Type']}\r\n".encode() in raw
