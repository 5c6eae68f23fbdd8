"""raybench is killed at every stage of a run of two arms: the service that made room for it is back each time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import own_ray
import pytest
import ray_product as product
import service_in_use
from service_in_use import CONFIGURATION, InUse, report_of

from raybench.deploy.keeping import ENDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SIM = {"sim": {"time_compression": 5}}

#: From the first look at the service to its verification: where the run is when it is killed.
STAGES: dict[str, Callable[[product.RunDirectory], object]] = {}


def at_phase(phase: str) -> Callable[[product.RunDirectory], object]:
    return lambda run: report_of(run.service_json).get("phase") == phase


def at_event(event: str, **fields: object) -> Callable[[product.RunDirectory], object]:
    return lambda run: any(fields.items() <= line.items() for line in product.events(run, event))


def records_of(point_id: str) -> Callable[[product.RunDirectory], object]:
    """The load is under way, and has left records."""

    def look(run: product.RunDirectory) -> bool:
        parts = run.attempt(point_id, 1).glob("*.arrows")
        return any(product.rows_of_part(part) for part in parts if part.name.count(".") == 1)

    return look


# The look itself is over too soon to be met for sure: this is it, or what comes right behind it.
STAGES["first look"] = lambda run: "phase" in report_of(run.service_json)
for _phase in ("taking_down", "down"):
    STAGES[_phase] = at_phase(_phase)
for _arm in ("first", "second"):
    _point = f"{_arm}/tiny/c2"
    STAGES |= {
        f"{_arm} launched": at_event("arm_launched", arm=_arm),
        f"{_arm} ready": at_event("arm_ready", arm=_arm),
        f"{_arm} attempt": at_event("attempt_started", point_id=_point),
        f"{_arm} load": records_of(_point),
        f"{_arm} committed": at_event("point_committed", point_id=_point),
        f"{_arm} stopped": at_event("arm_stopped", arm=_arm),
    }
STAGES["bringing_back"] = at_phase("bringing_back")


@pytest.fixture(scope="module")
def in_use(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InUse]:
    with service_in_use.service(tmp_path_factory.mktemp("service")) as started:
        yield started


def two_arms(folder: Path, in_use: InUse) -> Path:
    load = {"output_tokens": 256, "concurrency": [2], "requests": 12}
    content = product.scenario("two", workloads=[load], service=in_use.block(pause_s=0.4))
    content["arms"] = {"first": SIM, "second": SIM}
    return product.write_scenario(folder, content)


def assert_back(in_use: InUse) -> None:
    assert in_use.answers()
    assert in_use.configuration == CONFIGURATION
    assert in_use.pid is not None
    assert not (in_use.folder / "service.json.aside").exists()


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_is_killed_leaves_the_service_as_it_was(
    tmp_path: Path, cluster: own_ray.OwnRay, in_use: InUse, stage: str
) -> None:
    path = two_arms(tmp_path, in_use)
    with product.start("run", path, folder=tmp_path, env=cluster.inside) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        product.while_running(running, lambda: STAGES[stage](run) or None, stage)
        running.kill()
    report = product.until(
        lambda: (told := report_of(run.service_json)).get("phase") in ENDS and told, "the end of the keeper"
    )
    # Killed before the service was touched, or just behind it.
    ends = {"verified", "refused"} if stage == "first look" else {"verified"}
    assert report["phase"] in ends, report
    assert_back(in_use)


def test_a_run_that_was_killed_goes_on_and_takes_the_service_down_again(
    tmp_path: Path, cluster: own_ray.OwnRay, in_use: InUse
) -> None:
    path = two_arms(tmp_path, in_use)
    with product.start("run", path, folder=tmp_path, env=cluster.inside) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        product.while_running(running, lambda: STAGES["first committed"](run) or None, "the first point")
        running.kill()
    ended = product.run("run", "--resume", run.path, folder=tmp_path, env=cluster.inside)
    assert ended.exit_code == 0, ended.output
    assert ended.output.splitlines()[-1] == f"service {in_use.url}: back and verified"
    assert {row["verdict"] for row in product.points(run).values()} == {"accepted"}
    assert [line["phase"] for line in product.events(run, "service")] == ["down", "down", "verified"]
    assert_back(in_use)


@pytest.mark.parametrize("stage", ["down", "first launched", "first load", "first stopped", "second launched"])
def test_ctrl_c_brings_the_service_back_before_the_command_ends(
    tmp_path: Path, cluster: own_ray.OwnRay, in_use: InUse, stage: str
) -> None:
    path = two_arms(tmp_path, in_use)
    with product.start("run", path, folder=tmp_path, env=cluster.inside) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        product.while_running(running, lambda: STAGES[stage](run) or None, stage)
        running.interrupt()
        ended = running.end()
    assert ended.exit_code == 1, ended.output
    assert "interrupted" in ended.output
    assert ended.output.splitlines()[-1] == f"service {in_use.url}: back and verified"
    assert_back(in_use)


@pytest.mark.parametrize("driver_too", [False, True], ids=["submit", "submit-and-driver"])
def test_a_submit_with_a_ray_of_its_own_that_is_killed_leaves_the_service_as_it_was(
    tmp_path: Path, no_ray_of_the_surroundings: None, driver_too: bool
) -> None:
    """A service of its own: what the keeper started ends with the block, as all that came from the command."""
    with service_in_use.service(tmp_path / "service") as own:
        path = two_arms(tmp_path, own)
        with product.start("submit", path, folder=tmp_path) as running:
            run = product.wait_for_run(tmp_path / "runs", running)
            product.while_running(running, lambda: STAGES["first load"](run) or None, "the first load")
            assert (own.pid, own.configuration) == (None, None)
            driver = [one for one in product.marked(running.mark) if run.path.name in one.cmdline()]
            assert driver, "the job's entrypoint is told the run's id"
            for one in driver if driver_too else []:
                one.kill()
            running.kill()
            report = product.until(
                lambda: (told := report_of(run.service_json)).get("phase") in ENDS and told,
                "the end of the keeper",
            )
            assert report["phase"] == "verified", report
            assert_back(own)
            product.until(lambda: len(running.left_over()) == 1 or None, "the service alone is left")


def test_a_service_that_cannot_be_verified_is_the_last_line_and_the_exit_code(
    tmp_path: Path, cluster: own_ray.OwnRay, in_use: InUse
) -> None:
    path = two_arms(tmp_path, in_use)
    # The spoilt one never answers: this limit is waited out.
    content = product.scenario("spoilt", service=in_use.block(ready_timeout_s=5))
    content["service"]["bring_back"].insert(0, f"printf x >>{in_use.folder}/service.json.aside")
    path = product.write_scenario(tmp_path, content)
    with product.start("run", path, folder=tmp_path, env=cluster.inside) as running:
        ended = running.end()
    assert ended.exit_code == 5, ended.output
    last = ended.output.splitlines()[-1]
    assert last.startswith(f"SERVICE NOT VERIFIED: {in_use.url}")
    assert "LOOK AFTER IT NOW" in last
    (in_use.folder / "service.json").write_bytes(CONFIGURATION)
