"""How long a slot of the closed loop stands empty when many workers share it, by the records and by the engine.

    make bench-handover       (or: python benchmarks/handover.py [--requests 128,960] [--compression 10])

C = 64 over 4 load workers against the simulated engine, whose requests differ 100-fold in service time: once with
all on this machine, once with 2 workers on each of two client hosts and the engine on a third, each in a network
namespace of its own (needs root and iproute2; left out where they are missing, and said so). The last line is one
JSON object; a load is described by `figures` in tests/ray/spread_load.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ray"))

import network
import spread_load

PLACES = {"one_host": spread_load.one_host, "two_hosts": spread_load.two_hosts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", default="128,960")
    parser.add_argument("--compression", type=int, default=10, help="simulated seconds in one")
    parser.add_argument("--only", choices=PLACES, help="one place instead of both")
    arguments = parser.parse_args()
    for name in [one for one in os.environ if one.startswith(("RAY_", "RAYBENCH_"))]:
        del os.environ[name]
    results: dict[str, Any] = {"concurrency": spread_load.CONCURRENCY, "workers": spread_load.WORKERS}
    for name in [arguments.only] if arguments.only else PLACES:
        results[name] = []
        try:
            with tempfile.TemporaryDirectory() as folder, PLACES[name](Path(folder)) as place:
                for requests in map(int, arguments.requests.split(",")):
                    found = spread_load.figures(place, Path(folder), requests, arguments.compression)
                    print(f"{name}: {found}", flush=True)
                    results[name].append(found)
        except network.Unavailable as why:
            print(f"{name}: left out: {why}", flush=True)
            results[name] = None
    print(json.dumps(results))


if __name__ == "__main__":
    main()
