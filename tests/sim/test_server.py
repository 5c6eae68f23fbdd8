"""The simulated engine over real sockets on the loopback, as a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import pytest

from raybench.analysis.in_flight import in_flight
from raybench.corpus.tokens import load_corpus
from raybench.scenario.schema import Corpus, SyntheticCorpus
from raybench.scenario.sim_block import Sim, SimFaults

Call = Callable[[aiohttp.ClientSession], Awaitable[Any]]
LIMIT_S = 300.0


@contextmanager
def running(sim: Sim, *options: str) -> Iterator[str]:
    """A server for `sim`, ended when the block is left; gives its URL."""
    command = [
        sys.executable,
        "-m",
        "raybench.sim",
        "--sim-json",
        sim.model_dump_json(),
        "--parent-pid",
        str(os.getpid()),
    ]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["ready"] is True
            assert ready["pid"] == process.pid
            yield ready["url"]
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(Sim(time_compression=4.0, max_running_requests=64)) as address:
        yield address


def talk(url: str, call: Call) -> Any:
    """Run `call` with a session that has no limit of its own but the one on all of it."""

    async def run() -> Any:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            return await asyncio.wait_for(call(session), LIMIT_S)

    return asyncio.run(run())


def body(start: int, tokens: int = 64, output: int = 8, **fields: object) -> dict[str, object]:
    ids = [(start * 7919 + at * 31) % 32_000 for at in range(tokens)]
    sampling = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    return {"input_ids": ids, "stream": True, "sampling_params": sampling} | fields


def events(data: bytes) -> list[dict[str, Any]]:
    texts = [event.removeprefix(b"data: ") for event in data.split(b"\n\n") if event]
    assert texts[-1] == b"[DONE]"
    return [json.loads(text) for text in texts[:-1]]


async def generate(session: aiohttp.ClientSession, data: dict[str, object]) -> list[dict[str, Any]]:
    async with session.post("/generate", json=data) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        return events(await response.read())


async def get(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as response:
        assert response.status == 200, path
        return await response.json(content_type=None)


@asynccontextmanager
async def long_stream(
    session: aiohttp.ClientSession, rid: str, start: int
) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream that goes on until it is ended; entered after its first bytes."""
    async with session.post("/generate", json=body(start, output=30_000, rid=rid)) as response:
        await response.content.readany()
        yield response


async def until_idle(session: aiohttp.ClientSession) -> None:
    while (await get(session, "/sim/state"))["in_flight"]:
        await asyncio.sleep(0.01)


def test_the_plain_answer_equals_the_last_event_of_a_stream(url: str) -> None:
    async def both(session: aiohttp.ClientSession) -> tuple[Any, Any]:
        streamed = (await generate(session, body(2)))[-1]
        async with session.post("/generate", json=body(2, stream=False)) as response:
            return streamed, await response.json()

    streamed, plain = talk(url, both)
    assert plain["text"] == streamed["text"]
    assert plain["output_ids"] == streamed["output_ids"]


def test_o_l1_the_server_knows_how_many_were_in_flight_and_what_arrived() -> None:
    """45 slots wait behind the 16 that run, so that all 45 are inside before the first of them ends."""

    async def load(session: aiohttp.ClientSession) -> Any:
        unsent = iter(range(90))

        async def slot() -> None:
            for start in unsent:
                await generate(session, body(start, rid=f"r{start:03d}"))

        async def hold(number: int) -> None:
            data = body(100 + number, output=30_000, rid=f"before{number or ''}", stream=False)
            async with session.post("/generate", json=data) as reply:
                await reply.read()

        async def until(name: str, count: int) -> None:
            while (await get(session, "/sim/state"))[name] < count:
                await asyncio.sleep(0.02)

        before = [asyncio.ensure_future(hold(number)) for number in range(16)]
        await until("running_max", 16)
        slots = [asyncio.ensure_future(slot()) for _ in range(45)]
        await until("in_flight", 16 + 45)
        async with session.post("/abort_request", json={"rid": "before"}):
            pass
        await asyncio.gather(*before, *slots)
        return await get(session, "/sim/state")

    with running(Sim(max_running_requests=16, kv_pool_tokens=2 * 1024 * 1024)) as url:
        state = talk(url, load)
    assert (state["in_flight_max"], state["running_max"]) == (16 + 45, 16)
    begin, end = (np.array([one[key] for one in state["arrivals"]]) * 1e9 for key in ("unix_s", "end_unix_s"))
    assert in_flight(begin.astype(np.int64), end.astype(np.int64)).peak == 16 + 45
    seen = [one for one in state["arrivals"] if not one["rid"].startswith("before")]
    assert len(state["arrivals"]) == 16 + 90
    assert sorted(one["rid"] for one in seen) == [f"r{n:03d}" for n in range(90)]
    assert len({one["first_page"] for one in seen}) == 90
    assert {(one["output_tokens"], one["cached_tokens"], one["finish"]) for one in seen} == {(8, 0, "length")}


def test_o_n1_hundreds_of_streams_run_at_once() -> None:
    async def load(session: aiohttp.ClientSession) -> Any:
        answers = [asyncio.ensure_future(generate(session, body(start, output=4000))) for start in range(256)]
        while (state := await get(session, "/sim/state"))["running_max"] < 256:
            await asyncio.sleep(0.02)
        async with session.post("/abort_request", json={"rid": "", "abort_all": True}) as reply:
            assert reply.status == 200
        return await asyncio.gather(*answers), state

    with running(Sim(max_running_requests=256, kv_pool_tokens=2 * 1024 * 1024)) as url:
        answers, state = talk(url, load)
    assert state["in_flight_max"] == state["running_max"] == 256
    for answer in answers:
        assert answer[-1]["meta_info"]["finish_reason"]["type"] == "abort"
        assert answer[-1]["meta_info"]["completion_tokens"] == len(answer[-1]["output_ids"])


def test_a_client_that_goes_away_ends_its_request(url: str) -> None:
    async def leave(session: aiohttp.ClientSession) -> Any:
        async with long_stream(session, "goes-away", 3) as response:
            response.close()
        await until_idle(session)
        return (await get(session, "/sim/state"))["arrivals"][-1]

    last = talk(url, leave)
    assert (last["rid"], last["finish"]) == ("goes-away", "abort")
    assert last["output_tokens"] < 30_000


def test_a_client_that_goes_away_while_it_waits_for_a_plain_answer_ends_its_request(url: str) -> None:
    async def leave(session: aiohttp.ClientSession) -> Any:
        data = body(4, output=30_000, rid="plain-goes-away", stream=False)
        sending = asyncio.ensure_future(session.post("/generate", json=data))
        while not (await get(session, "/sim/state"))["in_flight"]:
            await asyncio.sleep(0.01)
        sending.cancel()
        await until_idle(session)
        return (await get(session, "/sim/state"))["arrivals"][-1]

    last = talk(url, leave)
    assert (last["rid"], last["finish"]) == ("plain-goes-away", "abort")


def test_an_abort_by_id_ends_the_stream_with_an_abort_event(url: str) -> None:
    async def abort(session: aiohttp.ClientSession) -> list[dict[str, Any]]:
        data = body(5, output=30_000, rid="to-abort-01")
        async with session.post("/generate", json=data) as response:
            first = await response.content.readany()
            for rid in ("to-abort-99", "to-abort-01"):
                async with session.post("/abort_request", json={"rid": rid}) as reply:
                    assert (reply.status, await reply.read()) == (200, b"")
            return events(first + await response.read())

    reasons = [event["meta_info"]["finish_reason"] for event in talk(url, abort)]
    assert reasons[-1]["type"] == "abort"
    assert set(reasons[:-1]) == {None}


def test_a_request_id_that_is_in_use_is_refused(url: str) -> None:
    async def twice(session: aiohttp.ClientSession) -> int:
        async with (
            long_stream(session, "one-id", 6) as response,
            session.post("/generate", json=body(7, rid="one-id", stream=False)) as second,
        ):
            response.close()
            return second.status

    assert talk(url, twice) == 400


def test_o_p1_a_flush_is_refused_while_busy_and_one_with_a_timeout_waits_for_idle(url: str) -> None:
    async def flush(session: aiohttp.ClientSession) -> list[tuple[int, str]]:
        async def post(query: str) -> tuple[int, str]:
            async with session.post(f"/flush_cache{query}") as reply:
                return reply.status, (await reply.text()).split("\n")[0]

        async with long_stream(session, "busy", 8) as response:
            busy = await post("")
            timed_out = await post("?timeout=0.05")
            two = [asyncio.ensure_future(post("?timeout=60")) for _ in range(2)]  # either may come first
            (refused,), (waiting,) = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
            response.close()
            return [busy, timed_out, refused.result(), await waiting]

    assert talk(url, flush) == [
        (400, "Flush cache failed."),
        (400, "Timed out waiting for idle state."),
        (400, "Another flush_cache is already in progress."),
        (200, "Cache flushed."),
    ]


def test_an_input_over_the_schedulers_own_limit_is_told_in_the_form_of_each_route(url: str) -> None:
    async def send(session: aiohttp.ClientSession) -> Any:
        long = body(10, tokens=32_764, output=1)
        streamed = await generate(session, long)
        async with session.post("/generate", json=long | {"stream": False}) as reply:
            plain = reply.status, await reply.json()
        prompt = {"prompt": long["input_ids"], "max_tokens": 1}
        async with session.post("/v1/completions", json=prompt | {"stream": True}) as reply:
            chunks = events(await reply.read())
        async with session.post("/v1/completions", json=prompt) as reply:
            return streamed, plain, chunks, reply.status

    streamed, (status, plain), chunks, completion = talk(url, send)
    assert streamed[0]["meta_info"]["finish_reason"]["type"] == "abort"
    assert streamed[0]["meta_info"]["completion_tokens"] == 0
    assert (status, completion, chunks[0]["error"]["code"]) == (400, 400, 400)
    assert "exceeds the maximum allowed length" in plain["error"]["message"]


def test_the_head_of_an_answer_waits_for_the_first_token_on_the_openai_routes_alone() -> None:
    async def send(session: aiohttp.ClientSession) -> None:
        async with (
            long_stream(session, "before-them", 1),
            session.post("/generate", json=body(2, rid="waits")) as begun,
        ):
            assert begun.status == 200
            asked = {"prompt": [1, 2, 3], "max_tokens": 2, "stream": True}
            waiting = asyncio.ensure_future(session.post("/v1/completions", json=asked))
            while (await get(session, "/sim/state"))["in_flight"] < 3:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            async with session.post("/abort_request", json={"rid": "before-them"}):
                pass
            async with await waiting as response:
                assert events(await response.read())[-1]["choices"][0]["finish_reason"] == "length"

    with running(Sim(time_compression=4.0, max_running_requests=1)) as url:
        talk(url, send)


def test_unknown_paths_and_methods_are_answered_as_by_the_real_engine(url: str) -> None:
    async def send(session: aiohttp.ClientSession) -> list[tuple[int, str]]:
        replies = []
        for method, path in (("GET", "/get_load"), ("GET", "/no_such_path"), ("GET", "/generate")):
            async with session.request(method, path) as reply:
                replies.append((reply.status, await reply.text()))
        return replies

    assert talk(url, send) == [
        (404, '{"detail":"Not Found"}'),
        (404, '{"detail":"Not Found"}'),
        (405, '{"detail":"Method Not Allowed"}'),
    ]


def test_the_passive_probes_generate_nothing_and_health_generates_a_token_that_no_client_asked_for(
    url: str,
) -> None:
    async def probe(session: aiohttp.ClientSession) -> Any:
        async def prefilled() -> tuple[float, float]:
            async with session.get("/metrics") as reply:
                lines = (await reply.text()).splitlines()
            values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}
            tokens = sum(v for k, v in values.items() if "prefill_effective" in k and 'mode="input"' in k)
            return tokens, sum(v for k, v in values.items() if k.startswith("sglang:num_requests_total"))

        counts = [await prefilled()]
        for path in ("/ping", "/ready", "/health"):
            async with session.get(path) as reply:
                assert (reply.status, await reply.read()) == (200, b"")
            counts.append(await prefilled())
        return counts

    before, ping, ready, health = talk(url, probe)
    assert before == ping == ready
    assert (health[0] - before[0], health[1] - before[1]) == (1, 0)


def test_each_start_has_an_identity_of_its_own() -> None:
    seeds = []
    for _ in range(2):
        with running(Sim()) as url:
            info = talk(url, lambda session: get(session, "/server_info"))
            seeds.append((info["random_seed"], info["startup_time"]["tokenizer_e2e"]))
    assert seeds[0] != seeds[1]


def test_text_that_is_held_from_the_start_is_hit_and_faults_come_through_the_command_line(tmp_path: Path) -> None:
    preload = json.dumps({"corpus": {"synthetic": {"tokens": 8192, "vocabulary": 500}}, "windows": 2})
    ids = load_corpus(Corpus(synthetic=SyntheticCorpus(tokens=8192, vocabulary=500)), tmp_path).ids
    sim = Sim(time_compression=10.0, faults=SimFaults(preload_corpus=True, flush_refusals=1))

    async def send(session: aiohttp.ClientSession) -> Any:
        cached = []
        for start in (640, 704, 768, 640):
            window = ids[start : start + 320].tolist()
            last = (await generate(session, body(0, input_ids=window)))[-1]
            cached.append(last["meta_info"]["cached_tokens"])
            statuses = []
            for _ in range(2):
                async with session.post("/flush_cache?timeout=5") as reply:
                    statuses.append(reply.status)
            cached.append(statuses)
        return cached

    with running(sim, "--preload-json", preload) as url:
        assert talk(url, send) == [304, [400, 200], 304, [200, 200], 0, [200, 200], 304, [200, 200]]


def test_the_log_file_and_the_port_file_are_written(tmp_path: Path) -> None:
    log, port = tmp_path / "sim.log", tmp_path / "port"
    with running(Sim(), "--log-file", str(log), "--port-file", str(port)) as url:
        talk(url, lambda session: generate(session, body(1)))
        assert url.endswith(f":{port.read_text().strip()}")
    text = log.read_text()
    assert "The server is fired up and ready to roll!" in text
    assert "Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0" in text
    assert '"POST /generate HTTP/1.1" 200 OK' in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_exit_code_0_although_a_stream_is_open(number: signal.Signals) -> None:
    async def stop(session: aiohttp.ClientSession) -> None:
        pid = int(url_pid[1])
        async with long_stream(session, "open", 1):
            os.kill(pid, number)
            while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0.01)

    command = [sys.executable, "-m", "raybench.sim"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        url_pid = (ready["url"], ready["pid"])
        talk(ready["url"], stop)
        assert process.wait(LIMIT_S) == 0


def test_the_server_ends_when_its_parent_is_killed() -> None:
    launcher = textwrap.dedent("""
        import os, subprocess, sys, time
        command = [sys.executable, "-m", "raybench.sim", "--parent-pid", str(os.getpid())]
        subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = psutil.Process(json.loads(parent.stdout.readline())["pid"])
        parent.kill()
        server.wait(LIMIT_S)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--sim-json", '{"profile": "huge"}'], "profile: Input should be 'small', 'tp2pp4' or 'tp8_eagle3'"),
        (["--sim-json", '{"faults": {"preload_corpus": true}}'], "--preload-json: the fault preload_corpus needs"),
        (["--sim-json", '{"kv_pool_tokens": 15}'], "sim: kv_pool_tokens 15 is less than one page of 16 tokens"),
        (["--preload-json", '{"corpus": {"path": "none.npy"}}'], "none.npy"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1: "),
        (["--port", "65536"], "port: Input should be less than or equal to 65535"),
        (["--log-file", "/no/such/folder/sim.log"], "cannot write /no/such/folder/sim.log: No such file"),
    ],
)
def test_options_that_cannot_be_are_refused_with_exit_code_2(options: list[str], told: str) -> None:
    command = [sys.executable, "-m", "raybench.sim", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("raybench sim: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_file_that_cannot_be_written_is_no_port_that_is_taken() -> None:
    command = [sys.executable, "-m", "raybench.sim", "--port-file", "/no/such/folder/port"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == "raybench sim: cannot write /no/such/folder/port: No such file or directory"
