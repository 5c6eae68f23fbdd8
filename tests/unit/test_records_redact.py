"""No secret leaves in facts, environments or command lines; nothing else is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.records.redact import REDACTED, names_secret, redact, redact_text


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "API_KEY", "apiKey", "apikey", "admin_api_key", "VLLM_API_KEY", "--api-key", "x-api-key"),
        *("HF_TOKEN", "hfToken", "hf_token", "token", "auth_token", "Authorization", "proxy-authorization"),
        *("password", "db_passwd", "AWS_SECRET_ACCESS_KEY", "client_secret", "ssh_private_key", "Cookie"),
        *("credentials", "X-Auth", "secret_name_key"),
    ],
)
def test_names_of_secrets_are_known_in_every_spelling(name: str) -> None:
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("max_total_num_tokens", "tokenizer_path", "skip_tokenizer_init", "eos_token", "bosToken", "page_size"),
        *("api_key_env", "HF_TOKEN_PATH", "token_usage", "max_tokens", "stop_token_ids", "token_capacity"),
        *("key", "monkey", "cache_key", "tokens", "model", "", "secretary", "per_token", "kv_cache_dtype"),
    ],
)
def test_names_that_only_look_alike_are_left_alone(name: str) -> None:
    assert not names_secret(name)


def test_nested_facts_lose_values_and_keep_names() -> None:
    facts = {
        "api_key": "abc",
        "args": [{"hf_token": "def", "port": 30000}],
        "api_keys": ["one", {"two": "three"}],
        "password": 1234,
        "max_total_num_tokens": 65_536,
    }
    assert redact(facts) == {
        "api_key": REDACTED,
        "args": [{"hf_token": REDACTED, "port": 30000}],
        "api_keys": [REDACTED, {"two": REDACTED}],
        "password": REDACTED,
        "max_total_num_tokens": 65_536,
    }


def test_a_secret_that_is_not_set_stays_visible_as_not_set() -> None:
    facts = {"api_key": None, "token": "", "enable_auth": True, "num_new_token": 7}
    assert redact(facts) == facts


def test_an_argument_list_loses_the_value_after_a_secret_flag() -> None:
    argv = ["serve", "--api-key", "abc", "--port", "1", "--hf-token=def", "--admin-api-key", "--trust"]
    assert redact(argv) == [
        *("serve", "--api-key", REDACTED, "--port", "1", f"--hf-token={REDACTED}"),
        *("--admin-api-key", "--trust"),
    ]


def test_headers_given_as_pairs_are_understood() -> None:
    assert redact([("Authorization", "Bearer abc"), ("Accept", "text/html")]) == [
        ["Authorization", REDACTED],
        ["Accept", "text/html"],
    ]


def test_a_known_secret_is_found_anywhere() -> None:
    facts = {"note": "called with hunter22 twice: hunter22", "port": 22}
    assert redact(facts, ["hunter22"]) == {
        "note": f"called with {REDACTED} twice: {REDACTED}",
        "port": 22,
    }


def test_a_secret_found_under_its_name_is_found_in_other_texts_too() -> None:
    facts = {"status": "key is qwerty99", "server": {"admin_api_key": "qwerty99"}}
    assert redact(facts) == {"status": f"key is {REDACTED}", "server": {"admin_api_key": REDACTED}}


def test_a_very_short_known_secret_does_not_eat_other_text() -> None:
    assert redact({"port": "30000", "api_key": "0"}) == {"port": "30000", "api_key": REDACTED}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("launch --api-key abc --port 1", "launch --api-key X --port 1"),
        ("launch --enable-metrics --api-key 'a b' -v", "launch --enable-metrics --api-key X -v"),
        ('launch --admin-api-key "a b" --hf-token c', "launch --admin-api-key X --hf-token X"),
        ("HF_TOKEN=abc VLLM_API_KEY=def vllm serve", "HF_TOKEN=X VLLM_API_KEY=X vllm serve"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer X"),
        ("-H 'Authorization: Basic dXNlcjpw'", "-H 'Authorization: Basic X'"),
        ("sent bearer abcdef to it", "sent bearer X to it"),
        ("http://user:pw@host:1/x?api_key=abc&n=1", "http://X@host:1/x?api_key=X&n=1"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": X, "n": 1}'),
        ("key sk-0123456789abcdef in text", "key X in text"),
        ("downloaded with hf_0123456789abcdef", "downloaded with X"),
    ],
)
def test_texts_lose_only_the_secret(text: str, clean: str) -> None:
    assert redact_text(text) == clean.replace("X", REDACTED)


@pytest.mark.parametrize(
    "text",
    [
        "Prefill batch, #new-token: 3000, #cached-token: 0, full token usage: 0.10",
        "--tokenizer-path /models/a --max-total-tokens 4096 --api-key-env NAME",
        "http://host:30000/v1/models",
        "time per output token: 12.5 ms",
    ],
)
def test_texts_without_a_secret_are_unchanged(text: str) -> None:
    assert redact_text(text) == text


leaves: Any = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
keys = st.sampled_from(["api_key", "model", "hf_token", "port", "env"])
nested = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(nested)
def test_redaction_keeps_the_shape_and_a_second_pass_changes_nothing(value: object) -> None:
    once = redact(value)
    assert shape(once) == shape(value)
    assert redact(once) == once


@given(nested, st.text("abcdefghijklmnop", min_size=12, max_size=20))
def test_a_secret_never_survives_wherever_it_stands(value: object, secret: str) -> None:
    facts = {"before": value, "admin_api_key": secret, "command": f"x --api-key {secret} y", "also": [secret]}
    assert secret not in json.dumps(redact(facts))


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else None


def test_values_under_secret_names_are_replaced_everywhere() -> None:
    info = {
        "api_key": "sk-first-secret",
        "admin_api_key": "adm-second-secret",
        "ssl_keyfile_password": "pw",
        "launch_command": "python -m sglang --api-key sk-first-secret --admin-api-key=adm-second-secret --tp 8",
        "internal_states": [{"api_key": "sk-first-secret", "note": "uses sk-first-secret"}],
    }
    clean: Any = redact(info)
    assert "secret" not in json.dumps(clean)
    assert clean["ssl_keyfile_password"] == REDACTED
    assert clean["launch_command"] == f"python -m sglang --api-key {REDACTED} --admin-api-key={REDACTED} --tp 8"
    assert clean["internal_states"][0]["note"] == f"uses {REDACTED}"
    assert info["api_key"] == "sk-first-secret"


def test_facts_that_look_like_secrets_are_kept() -> None:
    info = {
        "api_key": None,
        "tokenizer_path": "/models/x",
        "max_total_tokens": 65536,
        "eos_token": "</s>",
        "ssl_keyfile": "/etc/key.pem",
        "launch_command": "--max-total-tokens 3000 --tokenizer-path /models/x --chunked-prefill-size 8192",
        "speculative_token_map": "map.pt",
    }
    assert redact(info) == info
