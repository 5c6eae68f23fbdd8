"""The one error tree of raybench, and the exit codes that users see.

Of a run: 0 when every point is accepted or skipped; 4 when the engine failed a step of any point, or of an arm, or
a launch (whether the run stopped there or went on with `on_void: next`); else 1 when a point is void or missing.
Of anything else that fails, by its error:

    RaybenchError               1
    ├── ConfigError             2   a scenario, a cluster file or an option is wrong; nothing was contacted
    ├── ClusterError            3   Ray, placement, the Job API
    ├── TargetError             4   a step against the serving engine failed
    ├── RunDirectoryError       2   a run directory cannot be read, cannot be written, or does not fit the request
    ├── WindowsExhausted        2   the corpus has too little text left that a server was never sent
    └── ServiceNotBack          5   the service that made room for the run could not be verified after it

A failed request of the load is not in this tree: it is a record (`records/schema.py`, column `outcome`).
Any room may import this module.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

EXIT_OK = 0
EXIT_NOT_ALL_VALID = 1
EXIT_USAGE = 2
EXIT_CLUSTER = 3
EXIT_TARGET = 4
EXIT_SERVICE = 5


class RaybenchError(Exception):
    """Base of every error that raybench explains to its user. `exit_code` is the process's."""

    exit_code = EXIT_NOT_ALL_VALID


@dataclass(frozen=True)
class ConfigProblem:
    """One thing that is wrong in a user's file.

    path: place inside the file, as `workloads[0].concurrency`; empty for the file as a whole.
    value: the raw text as the user wrote it, or None when something is missing.
    allowed: what may stand there. way_out: what to do about it. line: 1-based, None if unknown.
    """

    message: str
    path: str = ""
    value: str | None = None
    allowed: str | None = None
    way_out: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line is not None else ""
        where = f"{self.path} ({line})" if self.path and line else self.path or line
        parts = [f"{where}: {self.message}" if where else self.message]
        if self.value is not None:
            parts.append(f"got: {self.value}")
        if self.way_out is not None:
            parts.append(f"try: {self.way_out}")
        if self.allowed is not None:  # last, since it may be long
            parts.append(f"allowed: {self.allowed}")
        return "; ".join(parts)


class ConfigError(RaybenchError):
    """Bad input, with every problem at once; `source` names the file or option."""

    exit_code = EXIT_USAGE

    def __init__(self, source: str, problems: list[ConfigProblem] | ConfigProblem | str) -> None:
        if isinstance(problems, str):
            problems = ConfigProblem(problems)
        self.source = source
        self.problems = [problems] if isinstance(problems, ConfigProblem) else problems
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, list[ConfigProblem]]]:
        return type(self), (self.source, self.problems)


class ClusterError(RaybenchError):
    """The cluster cannot carry the run: no Ray, too few nodes, an actor that cannot be placed."""

    exit_code = EXIT_CLUSTER


class TargetError(RaybenchError):
    """A step against the serving engine failed. `step` is one of the procedure (docs/DESIGN.md) or of a launch."""

    exit_code = EXIT_TARGET

    def __init__(self, step: str, message: str) -> None:
        self.step = step
        self.message = message
        super().__init__(f"{step}: {message}")

    @classmethod
    def gpu_memory_held(cls, arm_name: str, held: Iterable[str]) -> TargetError:
        """An arm has ended and its memory is not back. held: each GPU with how much."""
        return cls("stop", f"{arm_name} has ended, but GPU memory is still held: {', '.join(held)}")

    def __reduce__(self) -> tuple[type[TargetError], tuple[str, str]]:
        return type(self), (self.step, self.message)


class RunDirectoryError(RaybenchError):
    """A run directory is missing, unreadable, cannot be written, or belongs to another scenario."""

    exit_code = EXIT_USAGE

    @classmethod
    def unwritten(cls, path: Path, error: OSError) -> RunDirectoryError:
        """A write of the run's that failed, with the way out; whole lines and batches before it stay."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way_out = "free space on its disk" if full else "mend that"
        return cls(
            f"{path}: cannot be written: {error.strerror or error}; {way_out} and try again"
            " (a run: go on with --resume, what is committed stays)"
        )


class ServiceNotBack(RaybenchError):
    """The service in use, taken down for a run, is not known to be as it was."""

    exit_code = EXIT_SERVICE


class WindowsExhausted(RaybenchError):
    """Too few windows are left whose first page a server instance has never been sent."""

    exit_code = EXIT_USAGE

    def __init__(self, instance: str, needed: int, left: int, input_tokens: int) -> None:
        self.instance = instance
        self.needed = needed
        self.left = left
        self.input_tokens = input_tokens
        super().__init__(
            f"the corpus has {left} windows of {input_tokens} tokens left that the server instance "
            f"{instance} was never sent, {needed} are needed; use a larger corpus, or restart the server"
        )

    def __reduce__(self) -> tuple[type[WindowsExhausted], tuple[str, int, int, int]]:
        return type(self), (self.instance, self.needed, self.left, self.input_tokens)
