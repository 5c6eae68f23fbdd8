"""Real engines, each started at most once a session with the same options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from by_hand import CONTEXT, Start
from real_engines import HOME, Server, serving

OPTIONS = {
    "sglang": ("--context-length", str(CONTEXT)),
    "llamacpp": ("--context", str(CONTEXT)),
    "vllm": ("--max-model-len", str(CONTEXT)),
}
#: Tested where somebody has made its environment; CI does not, to save two minutes.
ONLY_IF_PREPARED = ("vllm",)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """The running server of an engine, one for each set of further options."""
    running: dict[tuple[str, ...], Server] = {}
    with ExitStack() as stack:

        def start_once(engine: str, *options: str) -> Server:
            if engine in ONLY_IF_PREPARED and not (HOME / engine).is_dir():
                pytest.skip(f"not prepared: python tools/engines/real_engines.py prepare {engine}")
            key = (engine, *options)
            if key not in running:
                log_path = tmp_path_factory.mktemp(engine) / "server.log"
                running[key] = stack.enter_context(serving(engine, log_path, options=[*OPTIONS[engine], *options]))
            return running[key]

        yield start_once
