"""A resumed run replays the traces that it began with."""

from pathlib import Path

import pytest

from raybench.cluster.coordinator_actor import refuse_changed_traces
from raybench.deploy.ledger import digest_input
from raybench.errors import RunDirectoryError


def test_a_trace_that_has_changed_is_refused_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("timestamp_s\n0\n")
    before = {"w": digest_input(path)}
    refuse_changed_traces({}, before)
    refuse_changed_traces({"traces": before}, {"w": digest_input(path)})
    path.write_text("timestamp_s\n1\n")
    with pytest.raises(RunDirectoryError, match="the trace of w has changed since the run began"):
        refuse_changed_traces({"traces": before}, {"w": digest_input(path)})
