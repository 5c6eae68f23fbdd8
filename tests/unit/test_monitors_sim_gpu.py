"""The simulated engine's devices, read from its JSON."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from raybench.monitors.gpu import GpuDevice, GpuReading, GpuUnavailable
from raybench.monitors.sim_gpu import HttpGpuSource

DEVICE: dict[str, object] = {
    "index": 0,
    "uuid": "SIM-0",
    "name": "Simulated GPU",
    "memory_total_bytes": 1000,
    "memory_free_bytes": 300,
    "memory_used_bytes": 700,
    "memory_reserved_bytes": None,
    "utilization_gpu_percent": 55,
    "power_w": 300.5,
}


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server on the loopback that answers exactly one request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/sim/gpus" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        thread.join()


def test_the_devices_are_those_of_the_list() -> None:
    with answering(200, json.dumps([DEVICE]).encode()) as url:
        assert HttpGpuSource(url + "/").open() == [GpuDevice("SIM-0", 0, "Simulated GPU", 1000, "simulated")]


def test_a_reading_is_marked_as_simulated_and_unknown_stays_none() -> None:
    with answering(200, json.dumps([DEVICE]).encode()) as url:
        assert HttpGpuSource(url).sample() == [
            GpuReading(
                "SIM-0",
                0,
                memory_total_bytes=1000,
                memory_free_bytes=300,
                memory_used_bytes=700,
                memory_reserved_bytes=None,
                memory_api="sim",
                utilization_gpu_percent=55.0,
                power_w=300.5,
            )
        ]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"", "404"),
        (200, b"<html>", "not JSON"),
        (200, b"\xff\xfe\xfd", "not JSON"),
        (200, b"{}", "not a list of devices"),
        (200, b"[1]", "not a list of devices"),
        (200, b"[]", "lists no device"),
        (200, json.dumps([DEVICE | {"uuid": None}]).encode(), "uuid is None, not a text"),
        (200, json.dumps([DEVICE | {"index": "0"}]).encode(), "index is '0', not a whole number"),
    ],
)
def test_anything_else_is_no_data_with_a_reason(status: int, body: bytes, reason: str) -> None:
    with answering(status, body) as url, pytest.raises(GpuUnavailable, match=reason):
        HttpGpuSource(url).open()


def test_a_proxy_of_the_machine_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(200, json.dumps([DEVICE]).encode()) as url:
        assert len(HttpGpuSource(url).open()) == 1


def test_a_server_that_is_gone_is_no_data() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
    with pytest.raises(GpuUnavailable, match="refused"):
        HttpGpuSource(url).sample()
