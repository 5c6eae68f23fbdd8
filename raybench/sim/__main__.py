"""`python -m raybench.sim`: the simulated engine as a process of its own.

Prints one JSON line on stdout when it accepts connections: {"ready": true, "url": ..., "pid": ...}.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from raybench.errors import EXIT_USAGE, ConfigError
from raybench.scenario.sim_block import Sim, SimProfile
from raybench.sim.faults import load_preload
from raybench.sim.process import run, say_ready
from raybench.sim.server import serving


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(arguments)

    def ready(url: str) -> None:
        if options.port_file is not None:
            options.port_file.write_text(f"{url.rpartition(':')[2]}\n")
        say_ready(url)

    try:
        sim = _sim(options)
        preload = None if options.preload_json is None else load_preload(options.preload_json)
        if sim.faults.preload_corpus and preload is None:
            raise ConfigError("--preload-json", "the fault preload_corpus needs to know the corpus")
    except ValidationError as error:
        wrong = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()]
        return _refuse("; ".join(f"{where}: {message}" if where else message for where, message in wrong))
    except (ConfigError, ValueError) as error:
        return _refuse(str(error))
    try:
        with ExitStack() as stack:
            log = sys.stderr
            if options.log_file is not None:
                log = stack.enter_context(options.log_file.open("a", buffering=1))
            run(serving(sim, options.host, preload=preload, log=log), parent_pid=options.parent_pid, ready=ready)
    except ConfigError as error:
        return _refuse(str(error))
    except OSError as error:
        if error.filename is not None:
            return _refuse(f"cannot write {error.filename}: {error.strerror}")
        return _refuse(f"cannot listen on {options.host}: {error}; name another port, or none for a free one")
    return 0


def _refuse(message: str) -> int:
    print(f"raybench sim: {message}", file=sys.stderr)
    return EXIT_USAGE


def _sim(options: argparse.Namespace) -> Sim:
    """Raises pydantic.ValidationError."""
    if options.sim_json is not None:
        sim = Sim.model_validate_json(options.sim_json)
    else:
        sim = Sim(
            profile=options.profile,
            time_compression=options.time_compression,
            incremental=options.incremental,
            seed=options.seed,
        )
    return sim if options.port is None else Sim.model_validate({**sim.model_dump(), "port": options.port})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="raybench sim", description="A simulated SGLang server.")
    parser.add_argument("--sim-json", help="all options of a scenario's `sim`, as JSON; replaces the next four")
    parser.add_argument("--profile", choices=get_args(SimProfile), default="small")
    parser.add_argument("--time-compression", type=float, default=1.0, help="virtual seconds in one")
    parser.add_argument("--incremental", action="store_true", help="events hold only what is new")
    parser.add_argument("--seed", type=int, default=0, help="decides the answers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, help="0 or left out with no port in --sim-json: a free one")
    parser.add_argument("--port-file", type=Path, help="written with the port once the server is ready")
    parser.add_argument("--log-file", type=Path, help="the engine's log; stderr if left out")
    parser.add_argument("--parent-pid", type=int, help="stop when this process is gone")
    parser.add_argument("--preload-json", help='text held from the start: {"corpus", "base", "windows"}')
    return parser


if __name__ == "__main__":
    sys.exit(main())
