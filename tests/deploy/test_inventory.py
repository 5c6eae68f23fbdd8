"""What an arm is made of: artifacts by content (large ones hashed once), git HEAD, versions without secrets."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from raybench.deploy import digests
from raybench.deploy.digests import DigestCache, digest_file
from raybench.deploy.inventory import take_inventory
from raybench.errors import ConfigError
from raybench.scenario.launch import Inventory


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DigestCache:
    monkeypatch.setattr(digests, "LARGE_BYTES", 4)
    return DigestCache(tmp_path / "cache" / "sha256.json")


def test_artifacts_are_told_as_given_with_their_content(tmp_path: Path, cache: DigestCache) -> None:
    (tmp_path / "serve.sh").write_text("exec serve\n")
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "a.diff").write_text("+1\n")
    taken = take_inventory(Inventory(artifacts=["serve.sh", "patches"], image="me/it:1"), tmp_path, cache)
    script, patches = taken["artifacts"]  # type: ignore[misc]
    assert script["as_given"] == "serve.sh"
    assert script["sha256"] == hashlib.sha256(b"exec serve\n").hexdigest()
    assert [file["path"] for file in patches["files"]] == ["a.diff"]
    assert taken["image"] == "me/it:1"


def test_an_artifact_that_is_not_there_is_an_error_that_names_it(tmp_path: Path, cache: DigestCache) -> None:
    with pytest.raises(ConfigError, match=r"model\.gguf: cannot be read: No such file"):
        take_inventory(Inventory(artifacts=["model.gguf"]), tmp_path, cache)


def test_a_working_copy_is_told_with_its_changes(tmp_path: Path, cache: DigestCache) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@x"]
        return subprocess.run(
            ["git", "-C", str(tmp_path / "repo"), *who, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    (tmp_path / "repo").mkdir()
    git("init", "-q")
    (tmp_path / "repo" / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    taken = take_inventory(Inventory(git="repo"), tmp_path, cache)["git"]
    assert taken == {"path": str(tmp_path / "repo"), "head": head, "changed": False}
    (tmp_path / "repo" / "file").write_text("2")
    taken = take_inventory(Inventory(git="repo"), tmp_path, cache)["git"]
    assert taken == {"path": str(tmp_path / "repo"), "head": head, "changed": True}
    with pytest.raises(ConfigError, match="git: "):
        take_inventory(Inventory(git="nowhere"), tmp_path, cache)


def test_versions_are_what_commands_say_without_secrets(tmp_path: Path, cache: DigestCache) -> None:
    versions = {"driver": "echo 580.1", "server": "echo v2 --api-key sk-abcdefgh1234"}
    taken = take_inventory(Inventory(versions=versions), tmp_path, cache)
    assert taken["versions"] == {"driver": "580.1", "server": "v2 --api-key <redacted>"}
    with pytest.raises(ConfigError, match=r"versions\.driver: `exit 3`: exit 3"):
        take_inventory(Inventory(versions={"driver": "exit 3"}), tmp_path, cache)


def test_a_large_file_is_hashed_once_until_it_changes(
    tmp_path: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    real = hashlib.file_digest

    def counting(file, name):  # type: ignore[no-untyped-def]
        hashed.append(file.name)
        return real(file, name)

    monkeypatch.setattr(digests.hashlib, "file_digest", counting)
    model = tmp_path / "model"
    model.write_bytes(b"12345")
    first = digest_file(model, cache)
    assert digest_file(model, DigestCache(tmp_path / "cache" / "sha256.json")) == first
    assert len(hashed) == 1
    model.write_bytes(b"123456")
    assert digest_file(model, cache).sha256 == hashlib.sha256(b"123456").hexdigest()
    assert len(hashed) == 2
    small = tmp_path / "small"
    small.write_bytes(b"1")
    digest_file(small, cache)
    digest_file(small, cache)
    assert len(hashed) == 4


def test_a_broken_cache_is_an_empty_one(tmp_path: Path, cache: DigestCache) -> None:
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache" / "sha256.json").write_text('{"torn')
    (tmp_path / "model").write_bytes(b"12345")
    again = DigestCache(tmp_path / "cache" / "sha256.json")
    assert digest_file(tmp_path / "model", again).sha256 == hashlib.sha256(b"12345").hexdigest()
