"""Every test of the load room runs with both clients."""

import pytest
import rig


@pytest.fixture(params=["wire", "plain"], autouse=True)
def each_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(rig, "CLIENT", request.param)
    return str(request.param)
