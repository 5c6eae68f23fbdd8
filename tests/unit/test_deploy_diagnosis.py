"""Why an engine ended, and what its log says of memory."""

import pytest

from raybench.deploy.diagnosis import Exit, diagnose, memory_mib

TORCH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.2 GiB free"


def ended(code: int | None, *lines: str, **options: object) -> Exit:
    known = {"asked": None, "patterns": (), "kernel_kills": 0, **options}
    return diagnose(code, lines, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        TORCH,
        "RuntimeError: CUDA error: out of memory",
        "alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory",
        "llama_init: failed to allocate compute pp buffers: unable to allocate CUDA0 buffer",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "ValueError: The model's max seq len (262144) is larger than the maximum number of tokens that can be"
        " stored in KV cache (180224)",
    ],
)
def test_memory_that_ran_out_is_seen_in_the_log_of_each_engine(line: str) -> None:
    assert ended(1, "loading", f"  {line}\n", "bye") == Exit("out_of_memory", 1, line)


def test_a_pattern_of_the_scenario_counts_as_well() -> None:
    assert ended(3, "minimum reservation exceeds", patterns=["reservation exceeds"]).reason == "out_of_memory"


@pytest.mark.parametrize(
    ("code", "kills", "reason"),
    [(0, 0, "ended"), (1, 0, "failed"), (137, 0, "killed"), (137, None, "killed"), (137, 1, "out_of_host_memory")],
)
def test_the_exit_code_speaks_where_the_log_does_not(code: int, kills: int | None, reason: str) -> None:
    assert ended(code, "nothing of note", kernel_kills=kills) == Exit(reason, code)  # type: ignore[arg-type]


def test_what_we_ended_ourselves_was_stopped_whatever_an_old_line_says() -> None:
    assert ended(137, TORCH, asked="stopped") == Exit("stopped", 137)


def test_a_launch_that_was_not_ready_may_have_run_out_of_memory() -> None:
    assert ended(143, TORCH, asked="not_ready").reason == "out_of_memory"
    assert ended(143, asked="not_ready").reason == "not_ready"


def test_a_server_that_talks_of_memory_in_passing_did_not_run_out() -> None:
    assert (
        ended(1, "GPU memory: 15.77 GiB, out of 16 GiB", "memory pool end. avail mem=9.52 GB").reason == "failed"
    )


@pytest.mark.parametrize(
    ("pattern", "line", "mib"),
    [
        (r"short by (?P<mib>[0-9.,]+) MiB", "short by 1,101.8 MiB", 1101.8),
        (r"short (?P<gib>[0-9.]+)", "short 1.5 GiB", 1536.0),
        (r"need (?P<need_bytes>\d+) have (?P<have_bytes>\d+)", "need 5323270656 have 4386459648", 893.4126),
    ],
)
def test_a_size_is_read_by_the_unit_in_its_group_s_name(pattern: str, line: str, mib: float) -> None:
    assert memory_mib(pattern, ["first", line]) == pytest.approx(mib)


def test_the_last_line_with_a_number_counts() -> None:
    assert memory_mib(r"slack (?P<mib>\S+)", ["slack 5.1", "slack 4.9", "slack unknown"]) == 4.9
    assert memory_mib(r"slack (?P<mib>\S+)", ["nothing"]) is None
    assert memory_mib(None, ["slack 5.1"]) is None
