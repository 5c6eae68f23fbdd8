"""records/rundir.py: names that are safe on disk, listing, and directories that are written once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import RunDirectoryError
from raybench.records.files import replacing
from raybench.records.rundir import RunDirectory, plain_name, safe_name

POINT = "base/16k/c64"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs" / "r1")
    run.create()
    return run


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_a_part_lies_under_its_point_and_attempt(run: RunDirectory) -> None:
    path = run.part(POINT, 1, "client-1.w0")
    assert run.relative(path) == "parts/base/16k/c64/attempt-1/client-1.w0.arrows"
    assert run.relative(run.gpu_part("gpu-host")) == "parts/gpu/gpu-host.arrows"
    assert run.relative(run.next_server_part("base")) == "parts/server/base.arrows"


def test_points_attempts_and_parts_are_listed_in_order(run: RunDirectory) -> None:
    for attempt in (10, 2, 1):
        touch(run.part(POINT, attempt, "w1"))
    second = touch(run.part(POINT, 1, "w0"))
    touch(run.part("base/1k/c1", 1, "w0"))
    touch(run.gpu_part("h"))
    touch(run.part(POINT, 1, "w0").with_suffix(".tmp"))
    assert run.points() == ["base/16k/c64", "base/1k/c1"]
    assert run.attempts(POINT) == [1, 2, 10]
    assert run.attempts("base/16k/c1") == []
    assert run.parts_of(POINT, 1) == [second, run.part(POINT, 1, "w1")]


def test_a_log_that_is_read_again_after_a_resume_has_a_part_of_its_own(run: RunDirectory) -> None:
    first = touch(run.next_server_log_part("a"))
    second = touch(run.next_server_log_part("a"))
    assert run.relative(first) == "parts/server_log/a.arrows"
    assert run.relative(second) == "parts/server_log/a~2.arrows"
    touch(run.part("server_log/w/c1", 1, "w0"))
    assert run.points() == ["server_log/w/c1"]
    assert run.server_log_parts() == [first, second]


def test_arms_called_gpu_and_server_do_not_mix_with_the_monitors_parts(run: RunDirectory) -> None:
    touch(run.part("gpu/h.arrows/c1", 1, "w0"))
    touch(run.part("server/w/c1", 1, "w0"))
    sample = touch(run.gpu_part("h"))
    assert run.gpu_parts() == [sample]
    assert run.server_parts() == []
    assert run.points() == ["gpu/h.arrows/c1", "server/w/c1"]


def test_a_resumed_run_has_parts_of_its_own_for_monitors(run: RunDirectory) -> None:
    assert run.next_gpu_session() == 1
    first = touch(run.gpu_part("h", run.next_gpu_session()))
    assert run.next_gpu_session() == 2
    second = touch(run.gpu_part("h", run.next_gpu_session()))
    assert run.next_gpu_session() == 3
    assert set(run.gpu_parts()) == {first, second}
    names = [run.relative(touch(run.next_server_part(arm))) for arm in ("a", "b", "a", "a")]
    assert [Path(name).name for name in names] == ["a.arrows", "b.arrows", "a~2.arrows", "a~3.arrows"]


@pytest.mark.parametrize("name", ["..", ".", "a/b", "h~2", "[fe80::1%eth0]:80", ".hidden", "名", "a b", "x\x00"])
def test_a_dangerous_name_becomes_one_plain_file_name(tmp_path: Path, name: str) -> None:
    encoded = safe_name(name)
    assert "/" not in encoded
    assert "~" not in encoded
    assert not encoded.startswith(".")
    assert plain_name(encoded) == name
    assert touch(tmp_path / encoded).parent == tmp_path


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=2, unique=True)
)
def test_two_names_never_share_a_file(names: list[str]) -> None:
    assert safe_name(names[0]) != safe_name(names[1])


def test_ordinary_names_stay_as_they_are() -> None:
    assert safe_name("TP2PP4_fp8.v2+b-1") == "TP2PP4_fp8.v2+b-1"


@pytest.mark.parametrize("point_id", ["16k/c64", "a/b/c/d", ""])
def test_a_point_id_has_three_parts(run: RunDirectory, point_id: str) -> None:
    with pytest.raises(AssertionError, match="arm/workload/level"):
        run.part(point_id, 1, "w0")


def test_a_directory_that_holds_a_run_is_not_created_again(run: RunDirectory) -> None:
    run.manifest.write_text("{}")
    with pytest.raises(RunDirectoryError, match="--resume"):
        RunDirectory(run.path).create()
    assert run.manifest.read_text() == "{}"


def test_an_empty_directory_may_become_a_run(tmp_path: Path) -> None:
    RunDirectory(tmp_path).create()
    assert (tmp_path / "parts").is_dir()


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        RunDirectory(tmp_path / "r").create()


def test_a_run_directory_is_known_by_its_manifest(run: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="no such directory"):
        RunDirectory(run.path / "gone").require()
    with pytest.raises(RunDirectoryError, match=r"manifest\.json"):
        run.require()
    run.manifest.write_text("{}")
    run.require()


def test_the_folder_of_an_arm_is_made(run: RunDirectory) -> None:
    assert run.arm("e7b") == run.path / "arms" / "e7b"
    assert run.arm("e7b").is_dir()


def test_a_folder_that_cannot_be_made_is_told_with_the_way_out(run: RunDirectory) -> None:
    (run.arm("a") / "request-log").write_text("in the way")
    with pytest.raises(RunDirectoryError, match=r"request-log: cannot be written: .*go on with --resume"):
        run.next_request_log("a")


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "points.parquet"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as beside:
        beside.write_bytes(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    with replacing(path) as beside:
        beside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
