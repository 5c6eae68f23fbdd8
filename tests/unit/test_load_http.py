"""Credentials and TLS of an endpoint: from the environment, by name, and said when they are missing."""

import ssl
from pathlib import Path

import pytest

from raybench.errors import ConfigError
from raybench.load.http import auth_headers, tls_context
from raybench.scenario.schema import Tls


def test_without_a_key_the_headers_are_the_endpoint_s() -> None:
    assert auth_headers({"X-Project": "a"}, None) == {"X-Project": "a"}


def test_the_key_comes_from_the_environment_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KEY", "sk-123")
    given = {"X-Project": "a"}
    assert auth_headers(given, "BENCH_KEY") == {"X-Project": "a", "Authorization": "Bearer sk-123"}
    assert given == {"X-Project": "a"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "BENCH_KEY is not set on this node"),
        ("", "BENCH_KEY is not set on this node"),
        ("sk-1\nHost: b", "BENCH_KEY holds a character that no header may hold"),
        ("schlüssel", "BENCH_KEY holds a character that no header may hold"),
    ],
)
def test_a_variable_without_a_key_that_can_be_sent_is_a_config_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, value: str | None, message: str
) -> None:
    monkeypatch.delenv("BENCH_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("BENCH_KEY", value)
    with pytest.raises(ConfigError, match=message):
        auth_headers({}, "BENCH_KEY")


def test_certificates_are_verified_unless_told_otherwise() -> None:
    assert tls_context(Tls()) is True
    assert tls_context(Tls(verify=False)) is False


def test_a_private_ca_is_used_beside_verification(tmp_path: Path) -> None:
    paths = ssl.get_default_verify_paths()
    system = paths.cafile or paths.openssl_cafile
    if not Path(system).is_file():
        pytest.skip("this system has no bundle of CA certificates to copy")
    own = tmp_path / "ca.pem"
    own.write_bytes(Path(system).read_bytes())
    context = tls_context(Tls(ca_file=str(own)))
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_ca_file_that_is_missing_or_damaged_is_a_config_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"tls\.ca_file: the CA file cannot be used") as caught:
        tls_context(Tls(ca_file=str(path)))
    assert str(path) in str(caught.value)
