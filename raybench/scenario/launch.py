"""The blocks `launch` and `inventory` of an arm, and how a service is verified: what a user may write.

What becomes of them on the target's host is in the room `deploy`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raybench.scenario.values import Misfit, Model, Name, Pattern, Seconds, Url, VariableName, Words, check_pattern

#: What these stand for in a command is told by the target's host; parameters have other names. folder: the arm's;
#: base: the scenario's, where that host has it; python: what raybench runs with there.
PLACES = ("folder", "base", "python")

#: Groups of a memory pattern, with their size in bytes.
MEMORY_GROUPS = {"bytes": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_NEED_GROUPS = {f"{side}_{unit}" for side in ("need", "have") for unit in MEMORY_GROUPS}
_SECRET_VARIABLE = re.compile(r"(?i)(?:^|_)(?:token|api_?key|secret|password|passwd)$")
_SECRET_FLAG = re.compile(r"(?i)--?(?:[a-z]+[-_])*(?:api[-_]?key|secret|password|passwd)(?:=|$)")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _given_a_secret(command: str) -> str | None:
    """The flag or variable of a command line that is given a credential otherwise than as $VARIABLE."""
    for word, following in pairwise([*command.split(), ""]):
        name, assigned, value = word.partition("=")
        names_one = _SECRET_FLAG.match(word) or (assigned and _SECRET_VARIABLE.search(name))
        if names_one and not (value or following).strip("\"'").startswith("$"):
            return name
    return None


def check_memory_pattern(pattern: str) -> str:
    """One group `mib` (or `bytes`, `kib`, `gib`), or two, as `need_bytes` and `have_bytes`."""
    groups = set(re.compile(check_pattern(pattern)).groupindex)
    alone = len(groups) == 1 and groups <= set(MEMORY_GROUPS)
    sides = sorted(group.partition("_")[0] for group in groups)
    if not alone and not (groups <= _NEED_GROUPS and sides == ["have", "need"]):
        raise ValueError(
            "names the number by its unit: one group (?P<mib>...) (or bytes, kib, gib), or two, as"
            " (?P<need_bytes>...) and (?P<have_bytes>...)"
        )
    return pattern


MemoryPattern = Annotated[
    str,
    AfterValidator(check_memory_pattern),
    Words("a regular expression of Python whose groups name units, as (?P<mib>[0-9.]+)"),
]
Argument = Annotated[str, Field(pattern=r"^[^\x00]*$"), Words("text")]
Command = Annotated[str, Field(pattern=r"^[^\x00]*[^\x00\s][^\x00]*$"), Words("a command line for /bin/sh")]
HostPath = Annotated[str, Field(pattern=r"^[^\x00]+$"), Words("a path on the target's host")]
ParameterName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), Words("a name of letters, digits and `_`")
]
SignalName = Literal["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGKILL"]


class Ready(Model):
    """When a launched engine is ready: both when both are given.

    url: asked with GET until it answers 200, from the target's host. log_pattern: a line of the log matches. With
    neither, the engine's passive probe must answer at the arm's own address.
    """

    url: Url | None = None
    log_pattern: Pattern | None = None
    timeout_s: Seconds = 1800.0


class StopRule(Model):
    """How a launched engine is ended: `command` if there is one, then `signal` to its process group, then SIGKILL.

    grace_s: limit of the command, and from the signal to SIGKILL. gpu_release_timeout_s: how long the GPUs may
    take to show as much free memory as before the launch.
    """

    command: Command | None = None
    signal: SignalName = "SIGTERM"
    grace_s: Seconds = 30.0
    gpu_release_timeout_s: Annotated[float, Field(ge=0)] = 60.0


class MemoryPatterns(Model):
    """Where the log tells how much memory was missing, or left over; the last line that matches counts."""

    shortfall: MemoryPattern | None = None
    slack: MemoryPattern | None = None


class Launch(Model):
    """A process of raybench's on the target's host. Exactly one of `argv` and `command`.

    `{name}` in argv, command, env, cwd and log becomes the parameter of that name, or one of `PLACES`.
    """

    argv: Annotated[list[Argument], Field(min_length=1)] | None = None
    command: Command | None = None
    env: dict[VariableName, Argument] = {}
    cwd: HostPath | None = None
    parameters: dict[ParameterName, int | float | str] = {}
    ready: Ready = Ready()
    stop: StopRule = StopRule()
    log: HostPath | None = None
    memory: MemoryPatterns = MemoryPatterns()
    out_of_memory: list[Pattern] = []

    @model_validator(mode="after")
    def _no_credentials(self) -> Launch:
        """The scenario is written into the run directory."""
        for name in self.env:
            if _SECRET_VARIABLE.search(name):
                raise Misfit(
                    "names a credential, and scenarios are written into the run directory: export it on the"
                    " target's host before Ray starts there; what is launched inherits it",
                    *("env", name),
                )
        for place, word in enumerate(self.argv or ()):
            if _SECRET_FLAG.match(word):
                raise Misfit(
                    "takes a credential, and scenarios are written into the run directory: write the launch as a"
                    " `command`, with $VARIABLE of the target's host in this place",
                    *("argv", place),
                )
        if (given := _given_a_secret(self.command or "")) is not None:
            raise Misfit(
                f"`{given}` is given a credential, and scenarios are written into the run directory: give it"
                " $VARIABLE of the target's host",
                "command",
            )
        return self

    @model_validator(mode="after")
    def _one_command(self) -> Launch:
        if (self.argv is None) == (self.command is None):
            raise ValueError("a launch needs exactly one of `argv` and `command`")
        for name in set(PLACES) & set(self.parameters):
            raise Misfit(f"`{name}` stands for a place there and cannot be a parameter", "parameters", name)
        used = {name for text in self._texts() for name in _PLACEHOLDER.findall(text)}
        for name in self.parameters:
            if name not in used:
                raise Misfit(f"nothing uses it: write {{{name}}} where it belongs", "parameters", name)
        return self

    def filled(self, places: Mapping[str, str]) -> Launch:
        """The launch with its parameters and `PLACES` put in. Other braces stay as they are."""
        values = {**{name: str(value) for name, value in self.parameters.items()}, **places}

        def fill(text: str) -> str:
            return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)

        return self.model_copy(
            update={
                "argv": None if self.argv is None else [fill(word) for word in self.argv],
                "command": None if self.command is None else fill(self.command),
                "cwd": None if self.cwd is None else fill(self.cwd),
                "env": {name: fill(value) for name, value in self.env.items()},
                "log": None if self.log is None else fill(self.log),
                "stop": self.stop.model_copy(
                    update={"command": None if self.stop.command is None else fill(self.stop.command)}
                ),
            }
        )

    def with_parameter(self, name: str, value: int | float | str) -> Launch:
        """Another value of one parameter that the launch has."""
        assert name in self.parameters, f"{name} is not a parameter"
        return self.model_copy(update={"parameters": {**self.parameters, name: value}})

    @property
    def effective_argv(self) -> list[str]:
        return self.argv if self.argv is not None else ["/bin/sh", "-c", self.command or ""]

    def _texts(self) -> list[str]:
        own = [*(self.argv or ()), self.command, self.cwd, *self.env.values(), self.log, self.stop.command]
        return [text for text in own if text is not None]


class Inventory(Model):
    """What the deployment is made of, as found on the target's host before the first point.

    artifacts: files or directories whose sha256 are kept (scripts, patches, binaries, models). image: the
    container's, as given. git: a working copy, whose HEAD is kept. versions: by name, a command whose output is.
    """

    artifacts: list[HostPath] = []
    image: str | None = None
    git: HostPath | None = None
    versions: dict[Name, Command] = {}


class ServiceCheck(Model):
    """How the service that was brought back is verified: health, facts as before, a long request, a burst.

    unchanged: commands whose output must be the same, byte for byte, as before the service was taken down.
    """

    prompt_tokens: Annotated[int, Field(ge=1)] = 16384
    burst: Annotated[int, Field(ge=1, le=64)] = 4
    burst_prompt_tokens: Annotated[int, Field(ge=1)] = 512
    output_tokens: Annotated[int, Field(ge=1)] = 16
    request_timeout_s: Seconds = 300.0
    unchanged: list[Command] = []
