"""Prompt sets are read to the byte, and what cannot be sent is refused with file and reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.corpus.prompts import Prompt, digests, read_prompt_sets
from raybench.engines import ENGINES
from raybench.engines.contract import RequestShape
from raybench.errors import ConfigError
from raybench.scenario.load import parse_scenario
from raybench.scenario.schema import Scenario

SCENARIO = """
name: test
arms: {{arm: {{engine: {engine}, route: {route}, url: "http://target:1"}}}}
workloads:
  - name: set
    input_tokens: 1k
    output_tokens: 100
    concurrency: [1]
    prompt_set:
      cold_by: no_prefix_reuse
      extra_body: {{reasoning_effort: medium, top_k: 1}}
      prompts:
        - {{name: one, path: {path}, output_tokens: 7, extra_body: {{top_k: 2}}}}
"""
#: Everything that a careless reader changes: mark, line ends, blanks, quotes, all lengths of UTF-8.
HARD = '\ufeffé \\ "q"\r\n\tz\u0000 中文 🙂 \u2028 end  \n'


def scenario(path: str, *, engine: str = "llamacpp", route: str = "chat") -> Scenario:
    return parse_scenario(SCENARIO.format(path=path, engine=engine, route=route), "test.yaml")


def prompt_of(folder: Path, name: str, data: bytes, **arm: str) -> Prompt:
    (folder / name).write_bytes(data)
    return read_prompt_sets(scenario(name, **arm), folder)["set"][0]


def sent(prompt: Prompt, engine: str, route: str) -> dict[str, object]:
    shape = RequestShape(route, 1, prompt.output_tokens, extra_body=prompt.extra_body, prompt="text")  # type: ignore[arg-type]
    template = ENGINES[engine].template(shape)
    data = template.render("rid", prompt.as_messages if template.prompt == "messages" else prompt.body)
    body: dict[str, object] = orjson.loads(data)
    return body


@pytest.mark.parametrize(
    ("engine", "route", "place"),
    [("llamacpp", "chat", "messages"), ("vllm", "completions", "prompt"), ("sglang", "generate", "text")],
)
def test_a_text_arrives_to_the_byte_on_every_route(tmp_path: Path, engine: str, route: str, place: str) -> None:
    body = sent(prompt_of(tmp_path, "p.md", HARD.encode(), engine=engine, route=route), engine, route)
    wanted = [{"role": "user", "content": HARD}] if place == "messages" else HARD
    assert body[place] == wanted


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_any_text_is_sent_as_it_is(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("prompts")
    body = sent(prompt_of(folder, "p.txt", text.encode()), "llamacpp", "chat")
    assert body["messages"] == [{"role": "user", "content": text}]


def test_messages_of_a_json_file_are_sent_as_they_stand(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "é"}, {"role": "user", "content": HARD}]
    for value in (messages, {"messages": messages}):
        prompt = prompt_of(tmp_path, "p.json", orjson.dumps(value))
        assert sent(prompt, "llamacpp", "chat")["messages"] == messages


def test_a_prompt_has_its_own_budget_and_fields_over_the_sets(tmp_path: Path) -> None:
    body = sent(prompt_of(tmp_path, "p.md", b"x"), "llamacpp", "chat")
    assert (body["max_tokens"], body["reasoning_effort"], body["top_k"]) == (7, "medium", 2)


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    prompt = prompt_of(tmp_path, "p.md", HARD.encode())
    told = {"name": "one", "size_bytes": len(HARD.encode()), "sha256": hashlib.sha256(HARD.encode()).hexdigest()}
    assert digests((prompt,)) == [told]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("p.md", b"a\nb\xff", "not UTF-8 text"),
        ("p.md", b" \n", "an empty prompt"),
        ("p.json", b"{", "not JSON"),
        ("p.json", b"{}", "no chat messages"),
        ("p.json", b'[{"content": "x"}]', "not a chat message"),
    ],
)
def test_a_file_that_is_no_prompt_is_refused(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        prompt_of(tmp_path, name, data)
    assert name in str(refused.value)


def test_a_missing_file_is_refused_unless_it_is_the_coordinators(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such prompt file"):
        read_prompt_sets(scenario("gone.md"), tmp_path)
    assert read_prompt_sets(scenario("/not/here.md"), tmp_path, here_only=True) == {}


def test_messages_need_the_route_chat(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="made of chat messages"):
        prompt_of(tmp_path, "p.json", b'[{"role": "user", "content": "x"}]', route="completions")
