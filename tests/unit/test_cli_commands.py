"""The command line: what is wrong is said with exit code 2 before anything is contacted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Cli
from protocol_fakes import scenario
from test_protocol_client_checks import roofline

import raybench
from raybench.arguments import scenario_path
from raybench.cli import app
from raybench.cluster.events import read_line
from raybench.records.roofline import store_roofline
from raybench.scenario.load import effective

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
CLUSTERS = sorted((ROOT / "clusters").glob("*.yaml"))
COMMANDS = sorted(
    command.name or command.callback.__name__ for command in app.registered_commands if command.callback
)


@pytest.fixture(autouse=True)
def no_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a command tried to contact something")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_the_version_is_shown_without_a_command(cli: Cli) -> None:
    assert cli("--version") == (0, f"raybench {raybench.__version__}\n", "")


def test_without_a_command_the_help_is_shown(cli: Cli) -> None:
    _, out, err = cli()
    assert "Usage: raybench" in out + err
    assert "submit" in out + err


@pytest.mark.parametrize("command", [*COMMANDS, "corpus build"])
def test_each_command_has_help(cli: Cli, command: str) -> None:
    code, out, _ = cli(*command.split(), "--help")
    assert code == 0
    assert f"raybench {command}" in out
    assert len(out.splitlines()) > 5


# check


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_check_accepts_every_shipped_scenario(cli: Cli, path: Path) -> None:
    code, out, err = cli("check", path)
    assert (code, err) == (0, "")
    assert "valid" in out


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda path: path.name)
def test_check_reads_a_cluster_file_too(cli: Cli, cluster: Path) -> None:
    code, out, err = cli("check", ROOT / "scenarios" / "16k.yaml", "--cluster", cluster)
    assert (code, err) == (0, "")
    assert f"{cluster}: valid; {cluster.stem} at http://" in out
    if cluster.stem == "two-node":
        assert out.endswith(": one client node, one target host\n")


BAD = """
name: bad
arms: {a: {url: "http://host:30000"}}
workloads:
  - {name: w, input_tokens: 16k, output_tokens: 512, concurency: [64]}
corpus: {synthetic: {}}
guards: {hit_rate_max: 2}
"""


@pytest.mark.parametrize("command", ["check", "plan", "submit", "run"])
def test_o_c1_every_command_says_all_that_is_wrong_with_a_scenario(cli: Cli, tmp_path: Path, command: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    code, out, err = cli(command, path)
    assert (code, out) == (2, "")
    assert "workloads[0].concurency" in err
    assert "concurrency" in err
    assert "guards.hit_rate_max" in err
    assert str(path) in err


@pytest.mark.parametrize("command", ["check", "plan", "submit", "run"])
def test_a_scenario_that_is_not_there(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "demo.yaml").write_text("name: x")
    code, _, err = cli(command, tmp_path / "demos.yaml")
    assert code == 2
    assert "no such file" in err
    assert str(tmp_path / "demo.yaml") in err


NO_CORPUS = """\
name: mine
arms: {prod: {url: "http://127.0.0.1:30000"}}
workloads: [{name: 1k-128, input_tokens: 1k, output_tokens: 128, concurrency: [1]}]
corpus: {path: corpus_ids.json}
"""


def test_a_corpus_that_is_not_there_or_cannot_be_read_is_refused_before_a_ray_is_started(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(NO_CORPUS)
    told = f"{tmp_path}/corpus_ids.json: no such corpus file or directory on this host"
    code, out, _ = cli("check", path)
    assert (code, f"not there yet: {told}" in out) == (0, True)
    for command in ("submit", "run"):
        code, _, err = cli(command, path, "--runs-dir", tmp_path / "runs")
        assert (code, told in err) == (2, True), command
    with (tmp_path / "corpus_ids.json").open("w") as huge:
        huge.truncate(2**30 + 1)  # takes no space
    for command in (["check"], ["submit", "--runs-dir", tmp_path / "runs"]):
        code, _, err = cli(*command, path)
        assert (code, "too large to be read as JSON" in err) == (2, True), command
    assert not (tmp_path / "runs").exists()


def test_a_bad_cluster_file_is_said_by_check_and_submit(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("name: c\naddress: head:8265\nworkers: 3\n")
    for command in ("check", "submit"):
        code, _, err = cli(command, ROOT / "scenarios" / "16k.yaml", "--cluster", path)
        assert code == 2
        assert "address" in err
        assert "workers" in err


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"name": "x"}', None])
def test_a_staged_scenario_that_is_none(cli: Cli, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "scenario.json"
    if content is not None:
        path.write_bytes(content)
    code, _, err = cli("check", path)
    assert code == 2
    assert str(path) in err


def test_a_staged_scenario_is_read(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(effective(scenario())))
    assert cli("check", path)[0] == 0


# plan


def test_plan_shows_the_first_seed_s_active_limits_and_queueing(cli: Cli) -> None:
    code, out, _ = cli("plan", ROOT / "scenarios" / "16k.yaml")
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("16k-512")]
    limits = [[cell for cell in row if cell in ("48", "16")][-1] for row in rows]
    assert limits == ["48"] * 5 + ["16"] * 5
    assert [row[-1] == "queueing" for row in rows] == [False] * 4 + [True] + [False] * 3 + [True] * 2
    assert "10 points to measure, 0 skipped" in out


def test_plan_shows_skips_with_their_arithmetic(cli: Cli) -> None:
    code, out, _ = cli("plan", ROOT / "scenarios" / "demo.yaml")
    assert code == 0
    assert out.startswith("demo: a small simulated deployment, twice as fast as real\n")
    assert "context limit: 40960 input + 1 output + 2 reserved = 40963 > 32768 tokens" in " ".join(out.split())
    assert "3 points to measure, 1 skipped" in out


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_plan_works_for_every_shipped_scenario_on_80_columns(
    cli: Cli, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = cli("plan", path)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80


# submit and run


@pytest.mark.parametrize("command", ["submit", "run"])
def test_nothing_to_run(cli: Cli, command: str) -> None:
    code, _, err = cli(command)
    assert code == 2
    assert "name a scenario file, or --resume RUN" in err


@pytest.mark.parametrize("command", ["submit", "run"])
def test_a_run_to_resume_that_is_not_there(cli: Cli, tmp_path: Path, command: str) -> None:
    code, _, err = cli(command, "--resume", tmp_path / "gone")
    assert code == 2
    assert f"{tmp_path / 'gone'}: no such directory" in err


def test_a_run_to_resume_that_is_not_there_is_said_before_a_ray_is_started(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("submit", ROOT / "scenarios" / "demo.yaml", "--resume", tmp_path)
    assert (code, out) == (2, "")
    assert "not a run directory" in err


@pytest.mark.parametrize(
    "manifest", ["{}", '{"scenario": {"name": "x"}, "base": "/", "scenario_source": "x"}', "[]", "{"]
)
def test_a_manifest_that_cannot_be_used(cli: Cli, tmp_path: Path, manifest: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    code, _, err = cli("submit", "--resume", tmp_path)
    assert code == 2
    assert str(tmp_path) in err
    assert "Traceback" not in err


@pytest.mark.parametrize("path", ["corpus/ids.npy", "/on/the/head/ids.npy"])
def test_a_run_of_a_cluster_whose_files_stood_beside_its_scenario_is_resumed_with_that(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr("raybench.submission.submit_run", lambda *_, **__: 0)
    monkeypatch.setattr("raybench.cluster.auth.for_cluster", lambda _: None)
    given = {**effective(scenario()), "corpus": {"path": path}}
    manifest = {"scenario": given, "base": "/gone", "scenario_source": "mine.yaml"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    code, _, err = cli("submit", "--resume", tmp_path, "--address", "http://head:8265")
    if path.startswith("/"):
        assert (code, err) == (0, "")
    else:
        assert code == 2
        assert "corpus/ids.npy stood beside its scenario" in err
        assert "name the scenario file (mine.yaml) as well" in err


def test_not_to_wait_needs_a_cluster_that_goes_on(cli: Cli) -> None:
    code, _, err = cli("submit", "demo", "--no-wait")
    assert (code, "--no-wait needs a running cluster" in err) == (2, True)


def test_two_clusters_at_once(cli: Cli) -> None:
    cluster = ROOT / "clusters" / "two-node.yaml"
    code, _, err = cli(
        "submit", ROOT / "scenarios" / "demo.yaml", "--address", "http://head:8265", "--cluster", cluster
    )
    assert code == 2
    assert "--address and --cluster" in err


@pytest.mark.parametrize("command", [["submit", ROOT / "scenarios" / "demo.yaml"], ["roofline"]])
def test_an_address_that_is_none(cli: Cli, command: list[object]) -> None:
    code, out, err = cli(*command, "--address", "head:8265")
    assert (code, out) == (2, "")
    assert "--address: no address of a Job API; got: head:8265; allowed: one such as http://head:8265" in err


def test_what_a_job_cannot_do_is_told_to_its_submitter_as_an_event(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYBENCH_EVENTS", "1")
    code, out, err = cli("run", tmp_path / "gone.yaml")
    event = read_line(out.rstrip("\n"))
    assert (code, err) == (2, "")
    assert event is not None
    assert (event["kind"], event["exit_code"]) == ("error", 2)
    assert "no such file" in str(event["message"])


def test_a_cluster_s_token_that_is_not_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYBENCH_RAY_TOKEN", raising=False)
    cluster = ROOT / "clusters" / "two-node.yaml"
    code, _, err = cli("submit", ROOT / "scenarios" / "demo.yaml", "--cluster", cluster)
    assert code == 2
    assert "RAYBENCH_RAY_TOKEN" in err


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["check"], ["plan", "a", "b"], ["submit", "--concurrency", "3"], ["report"]]
)
def test_usage_errors(cli: Cli, arguments: list[str]) -> None:
    code, out, err = cli(*arguments)
    assert code == 2
    assert "Usage" in out + err


@pytest.mark.parametrize("command", ["status", "logs", "stop", "fetch"])
def test_a_run_that_was_never_submitted_from_here(cli: Cli, tmp_path: Path, command: str) -> None:
    known = tmp_path / ".submissions"
    known.mkdir()
    (known / "demo-1.json").write_text("{}")
    code, _, err = cli(command, "demo-2", "--runs-dir", tmp_path)
    assert code == 2
    assert "no run demo-2 was submitted from" in err
    assert "known here: demo-1" in err


# merge and report


@pytest.mark.parametrize("command", ["merge", "report", "export"])
def test_a_run_directory_that_is_not_there(cli: Cli, tmp_path: Path, command: str) -> None:
    code, out, err = cli(command, tmp_path / "gone")
    assert (code, out) == (2, "")
    assert str(tmp_path / "gone") in err
    assert "no such" in err


@pytest.mark.parametrize("command", ["merge", "report"])
def test_a_directory_that_is_no_run(cli: Cli, tmp_path: Path, command: str) -> None:
    code, _, err = cli(command, tmp_path)
    assert code == 2
    assert "not a run directory" in err


# corpus build


def test_a_tokenizer_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("text")
    code, _, err = cli(
        "corpus", "build", text, "--tokenizer", tmp_path / "tokenizer.json", "--output", tmp_path / "c"
    )
    assert code == 2
    assert "tokenizer.json" in err
    assert not (tmp_path / "c").exists()


# What a command imports

PROBE = """
import sys
from raybench.cli import main
for arguments in {calls!r}:
    try:
        main(arguments)
    except SystemExit:
        pass
print("loaded:", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def loaded_by(*calls: list[str]) -> set[str]:
    """Top packages that a fresh process holds after these commands."""
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(calls=list(calls))],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=ROOT,
    )
    return set(done.stdout.rsplit("loaded:", 1)[1].split())


@pytest.fixture
def with_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


@pytest.mark.usefixtures("with_processes")
def test_report_merge_plan_and_check_load_no_ray(tmp_path: Path) -> None:
    loaded = loaded_by(
        ["check", "scenarios/demo.yaml"],
        ["plan", "scenarios/demo.yaml"],
        ["merge", str(tmp_path)],
        ["report", str(tmp_path)],
        ["status", "nothing", "--runs-dir", str(tmp_path)],
    )
    assert {"raybench", "pyarrow", "rich"} <= loaded
    assert not {"ray", "aiohttp", "grpc"} & loaded


@pytest.mark.usefixtures("with_processes")
def test_help_loads_nothing_heavy() -> None:
    assert not {"ray", "aiohttp", "pyarrow", "numpy", "pydantic"} & loaded_by(["--help"])


# open loops

REPLAY = """
name: replay
arms: {a: {url: "http://host:30000"}}
workloads:
  - {name: w, input_tokens: 64, output_tokens: 4, trace: {path: t.csv, speeds: [1, 2]}, requests: 2}
  - {name: r, input_tokens: 64, output_tokens: 4, rate_per_s: [0.5], duration_s: 90}
corpus: {synthetic: {tokens: 32k}}
"""


@pytest.mark.parametrize("command", ["check", "plan", "submit", "run"])
def test_a_trace_that_cannot_be_replayed_is_refused_before_anything_is_contacted(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "replay.yaml"
    path.write_text(REPLAY)
    code, out, err = cli(command, path)
    assert (code, out) == (2, "")
    assert f"{tmp_path / 't.csv'}: no such trace file" in err
    (tmp_path / "t.csv").write_text("timestamp_s\n1\n0\n")
    code, out, err = cli(command, path)
    assert (code, out) == (2, "")
    assert f"{tmp_path / 't.csv'}: line 3: comes before the entry above it; try: sort the trace by time" in err


def test_plan_says_how_long_each_open_loop_sends(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "replay.yaml"
    path.write_text(REPLAY)
    (tmp_path / "t.csv").write_text("timestamp_s\n1\n61\n")
    code, out, err = cli("plan", path)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "w ≤ 64 -> 4 trace x1 2 not known sends for 1:00" in lines
    assert "w ≤ 64 -> 4 trace x2 2 not known sends for 0:30" in lines
    assert "r 64 -> 4 0.5 req/s 45 not known sends for 1:30" in lines


# The client hosts


def test_plan_warns_of_points_above_the_stored_roofline(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("plan", ROOT / "scenarios" / "demo.yaml", "--runs-dir", tmp_path)
    assert code == 0
    assert "no roofline is stored; `raybench roofline` measures" in out
    store_roofline(tmp_path, roofline(host="client-1", streams=20))
    code, out, _ = cli("plan", ROOT / "scenarios" / "demo.yaml", "--runs-dir", tmp_path)
    assert code == 0
    assert "client client-1: 20 streams, 40,000 tokens/s" in out
    assert "warning: small/1k-128/c24: client-1 is to carry 24 streams, 120% of the 20" in out
    assert "small/1k-128/c4:" not in out


def test_plan_holds_the_tokens_of_a_rate_against_the_roofline(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "replay.yaml"
    path.write_text(REPLAY.replace("[0.5]", "[0.5, 9000]"))
    (tmp_path / "t.csv").write_text("timestamp_s\n1\n61\n")
    store_roofline(tmp_path, roofline(host="client-1", streams=20))
    code, out, _ = cli("plan", path, "--runs-dir", tmp_path)
    assert code == 0
    assert "warning: a/r/r9000: client-1 is to carry 36,000 tokens/s, 90% of the 40,000" in out
    assert out.count("warning: ") == 1, "a trace's rate is not known here, and 0.5 req/s are few"


def test_plan_names_a_damaged_roofline(cli: Cli, tmp_path: Path) -> None:
    store_roofline(tmp_path, roofline(host="client-1")).write_text("{}")
    code, _, err = cli("plan", ROOT / "scenarios" / "demo.yaml", "--runs-dir", tmp_path)
    assert code == 2
    assert "client-1.json: not a roofline of this version of raybench" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--client", "fast"], "no such client; got: fast; allowed: auto or plain"),
        (["--cluster", ROOT / "clusters" / "two-node.yaml", "--address", "http://h:1"], "name two clusters"),
        (["--workers", "0"], "--workers"),
        (["--error-ms", "0"], "--error-ms"),
    ],
)
def test_roofline_refuses_wrong_options_before_anything_is_started(
    cli: Cli, arguments: list[object], words: str
) -> None:
    code, _, err = cli("roofline", *arguments)
    assert code == 2
    assert words in err


def test_the_demonstration_is_named_without_a_path_and_is_the_one_of_the_repository(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("check", "demo")[0] == 0
    assert scenario_path("demo").read_bytes() == (ROOT / "scenarios" / "demo.yaml").read_bytes()


def test_a_file_of_the_users_goes_before_the_demonstration_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("")
    assert scenario_path("demo") == Path("demo")


@pytest.mark.parametrize("given", ["demos", "../packaged/demo", "a/demo", "demo.yaml", "."])
def test_any_other_name_is_a_path(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert scenario_path(given) == Path(given)
