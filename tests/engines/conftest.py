"""Real engines, each started at most once a session; everything here has the marker `engine`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_engines import HOME, Server, serving

Start = Callable[[str], Server]

#: Tokens of context that the servers are started with: what does not fit is soon reached.
CONTEXT = 4096
OPTIONS = {
    "sglang": ("--context-length", str(CONTEXT)),
    "llamacpp": ("--context", str(CONTEXT)),
    "vllm": ("--max-model-len", str(CONTEXT)),
}
#: Engines whose environment is not made for the tests alone: it takes minutes.
ONLY_IF_PREPARED = ("vllm",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(autouse=True, scope="session")
def no_ray_of_the_surroundings() -> Iterator[None]:
    """Whoever runs the tests may have a cluster of their own in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("RAY_", "RAYBENCH_")):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """The running server of an engine."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def start_once(engine: str) -> Server:
            if engine in ONLY_IF_PREPARED and not (HOME / engine).is_dir():
                pytest.skip(f"not prepared: python tools/engines/real_engines.py prepare {engine}")
            if engine not in running:
                log_path = tmp_path_factory.mktemp(engine) / "server.log"
                running[engine] = stack.enter_context(serving(engine, log_path, options=OPTIONS[engine]))
            return running[engine]

        yield start_once
