"""The faults of a chaos run: each strikes one thing, and is undone by the time it is written down."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import ray_product as product
from chaos_verdict import SPOILS, Fault
from hosts import Hosts, command

#: How many of each; the order is the seed's.
DECK = {
    "worker killed": 24,
    "client link cut": 9,
    "client link cut for long": 1,
    "target link cut": 9,
    "client link slow": 2,
    "target link slow": 2,
    "engine killed": 2,
    "client raylet killed": 1,
    "target raylet killed": 1,
    "coordinator killed": 2,
    "driver killed": 2,
    "disk full": 2,
}
#: After these the command can only end: nothing more is struck until it has.
FATAL = frozenset(
    {"engine killed", "client raylet killed", "target raylet killed", "coordinator killed", "driver killed"}
)
#: How long a short cut lasts, and what a slow link lets through, at least and at most.
CUT_S, SLOW_KBIT = (0.3, 2.0), (128, 1024)
#: What a run may take to notice that it cannot go on, and to end.
END_LIMIT_S = 120.0
JOIN_LIMIT_S = 90.0


def shuffled(chance: random.Random, deck: dict[str, int]) -> list[str]:
    assert deck.keys() <= SPOILS.keys()
    kinds = [kind for kind, count in deck.items() for _ in range(count)]
    chance.shuffle(kinds)
    return kinds


class Striker:
    """Carries faults out on the hosts."""

    def __init__(self, hosts: Hosts, chance: random.Random) -> None:
        self._hosts = hosts
        self._chance = chance
        self.faults: list[Fault] = []
        self.victim = ""

    def strike(self, kind: str, running: product.Running) -> bool:
        """Do it, and undo what has to be undone; False when its victim does not live at the moment."""
        self.victim = ""
        begin = time.time_ns()
        if not self._carry_out(kind, running):
            return False
        self.faults.append(Fault(kind, begin, time.time_ns()))
        if kind in FATAL:
            self._await_end(running)
        return True

    def mend(self) -> None:
        """Bring back the nodes that are gone, and wait until Ray knows three that live, each once."""
        self._hosts.complete()
        product.until(
            lambda: len(nodes := self._hosts.live_nodes()) == 3 == len(set(nodes)), "three nodes", JOIN_LIMIT_S
        )

    def _carry_out(self, kind: str, running: product.Running) -> bool:
        host = kind.split()[0]
        match kind:
            case "worker killed":
                return self._kill(["head", "client"], "ray::LoadWorkerActor")
            case "engine killed":
                return self._kill(["target"], "-m raybench.sim", "--sim-json", without="guard.py")
            case "coordinator killed":
                return self._kill(["head"], "ray::CoordinatorActor")
            case "driver killed":
                return self._kill(["head"], "-m raybench run", without="/bin/sh")
            case "client raylet killed" | "target raylet killed":
                return self._kill([host], "raylet/raylet")
            case "client link cut" | "target link cut":
                return self._cut(host, lambda: time.sleep(self._chance.uniform(*CUT_S)))
            case "client link cut for long":
                return self._cut(host, lambda: self._await_void(running))
            case "client link slow" | "target link slow":
                return self._slow(host)
            case _:
                assert kind == "disk full", kind
                return self._fill(running)

    def _kill(self, hosts: list[str], *words: str, without: str = "\0") -> bool:
        processes = (one for host in hosts for one in self._hosts.find(host, *words))
        found = [one for one in processes if without not in command(one)]
        if not found:
            return False
        victim = self._chance.choice(found)
        self.victim = f"{victim.pid} {command(victim)[:60]}"
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            return True
        return False

    def _cut(self, host: str, wait: Callable[[], object]) -> bool:
        self._hosts.net.cut(host)
        try:
            wait()
        finally:
            self._hosts.net.restore(host)
        return True

    def _slow(self, host: str) -> bool:
        self._hosts.slow_down(host, self._chance.randint(*SLOW_KBIT))
        try:
            time.sleep(self._chance.uniform(0.5, 2.0))
        finally:
            self._hosts.speed_up(host)
        return True

    def _fill(self, running: product.Running) -> bool:
        self._hosts.fill_disk()
        try:
            self._await_end(running)
        finally:
            self._hosts.free_disk()
        return True

    def _await_void(self, running: product.Running) -> None:
        """Until the run has given up the worker behind the cut link."""
        run = product.only_run(self._hosts.runs_dir)
        assert run is not None
        before = len(product.events(run, "verdict"))
        product.until(
            lambda: len(product.events(run, "verdict")) > before or running.process.poll() is not None,
            "a verdict on the attempt behind a cut link",
            END_LIMIT_S,
        )

    def _await_end(self, running: product.Running) -> None:
        product.until(
            lambda: running.process.poll() is not None,
            f"the end of the command:\n{running.output[-2000:]}",
            END_LIMIT_S,
        )
