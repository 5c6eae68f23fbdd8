"""No secret leaves the facts, and no fact is lost for looking like one."""

from __future__ import annotations

import json

import pytest

from raybench.engines.redact import REDACTED, redacted


def test_values_under_secret_names_are_replaced_everywhere() -> None:
    info = {
        "api_key": "sk-first-secret",
        "admin_api_key": "adm-second-secret",
        "ssl_keyfile_password": "pw",
        "launch_command": "python -m sglang --api-key sk-first-secret --admin-api-key=adm-second-secret --tp 8",
        "internal_states": [{"api_key": "sk-first-secret", "note": "uses sk-first-secret"}],
    }
    clean = redacted(info)
    assert "secret" not in json.dumps(clean)
    assert clean["ssl_keyfile_password"] == REDACTED
    assert clean["launch_command"] == f"python -m sglang --api-key {REDACTED} --admin-api-key={REDACTED} --tp 8"
    assert clean["internal_states"][0]["note"] == f"uses {REDACTED}"
    assert info["api_key"] == "sk-first-secret"


@pytest.mark.parametrize(
    "command",
    [
        "--api-key SECRET",
        "--api-key=SECRET",
        "--api-key 'SECRET'",
        '--admin-api-key "SECRET"',
        "HF_TOKEN=SECRET python",
        "--hf-token SECRET",
        "http://user:SECRET@host/x",
    ],
)
def test_a_secret_on_a_command_line_is_replaced_without_its_own_field(command: str) -> None:
    clean = redacted({"launch_command": f"run {command} --port 1"})["launch_command"]
    assert "SECRET" not in clean
    assert REDACTED in clean


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
    assert redacted(info) == info
