"""Digests of inputs that anybody can check with sha256sum."""

import hashlib
from pathlib import Path

import pytest

from raybench.deploy.digests import DirectoryDigest, FileDigest, digest_directory, digest_file, digest_input
from raybench.errors import ConfigError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_file_has_the_sha256_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc")
    assert digest_file(tmp_path / "a.txt") == FileDigest("a.txt", 3, ABC)


def test_a_file_larger_than_one_read_is_digested_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096 * 3
    (tmp_path / "large").write_bytes(content)
    digest = digest_file(tmp_path / "large")
    assert (digest.size_bytes, digest.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_directory_is_its_files_sorted_by_path_as_sha256sum_prints_them(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    listing = f"{EMPTY}  b\n{ABC}  sub/a\n"
    assert digest_directory(tmp_path) == DirectoryDigest(
        (FileDigest("b", 0, EMPTY), FileDigest("sub/a", 3, ABC)),
        3,
        hashlib.sha256(listing.encode()).hexdigest(),
    )


def test_the_same_content_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"abc")
    assert digest_directory(tmp_path / "one") == digest_directory(tmp_path / "two")
    (tmp_path / "two" / "x").rename(tmp_path / "two" / "y")
    assert digest_directory(tmp_path / "one").sha256 != digest_directory(tmp_path / "two").sha256


def test_links_are_followed_as_model_caches_are_made_of_them(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "x").write_bytes(b"abc")
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").symlink_to(tmp_path / "blobs" / "x")
    (model / "more").symlink_to(tmp_path / "blobs", target_is_directory=True)
    assert digest_directory(model).files == (FileDigest("more/x", 3, ABC), FileDigest("weights", 3, ABC))


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    assert [file.path for file in digest_directory(tmp_path).files] == ["x"]


def test_a_broken_link_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "weights").symlink_to(tmp_path / "missing")
    with pytest.raises(ConfigError, match="weights: cannot be read: No such file"):
        digest_directory(tmp_path)


def test_a_missing_file_or_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: cannot be read"):
        digest_file(tmp_path / "missing")
    with pytest.raises(ConfigError, match="missing: not a directory"):
        digest_directory(tmp_path / "missing")


def test_an_input_is_named_without_the_folders_above_it(tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    (tmp_path / "ids" / "a").write_bytes(b"abc")
    assert digest_input(tmp_path / "ids" / "a") == {
        "name": "a",
        "kind": "file",
        "size_bytes": 3,
        "sha256": ABC,
    }
    directory = digest_input(tmp_path / "ids")
    assert directory["name"] == "ids"
    assert directory["files"] == [{"path": "a", "size_bytes": 3, "sha256": ABC}]
    assert str(tmp_path) not in str(directory)
