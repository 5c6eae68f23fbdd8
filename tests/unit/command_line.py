"""`raybench` called in this process, as its users call it."""

import pytest

from raybench.cli import main


class Cli:
    """`cli("check", path)` -> (exit code, stdout, stderr)."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        text = self._capsys.readouterr()
        return int(ended.value.code or 0), text.out, text.err
