"""One line on the service in use: quiet when it is back, loud when it may not be."""

from raybench.deploy.keeping import is_back
from raybench.report.service import service_line

BASE = {"service": "http://h:1", "problems": []}


def test_a_verified_service_is_said_so_and_by_whom() -> None:
    assert service_line(BASE | {"phase": "verified"}) == "service http://h:1: back and verified"
    assert "an earlier run had left it down" in service_line(BASE | {"phase": "verified", "recovered": True})
    assert is_back(BASE | {"phase": "verified"})


def test_a_service_that_was_not_touched_needs_no_attention() -> None:
    report = BASE | {"phase": "refused", "problems": ["it does not answer"]}
    assert service_line(report) == "service http://h:1: not touched: it does not answer"
    assert is_back(report)


def test_a_service_that_is_not_verified_is_loud_and_says_what_to_do() -> None:
    report = BASE | {"phase": "not_verified", "problems": ["kv_pool_tokens was 647040, is 600000", "x"]}
    line = service_line(report)
    assert line.startswith("SERVICE NOT VERIFIED: http://h:1: kv_pool_tokens was 647040, is 600000; x.")
    assert "LOOK AFTER IT NOW" in line
    assert "raybench restore" in line
    assert not is_back(report)


def test_a_service_on_its_way_back_is_not_called_back() -> None:
    report = BASE | {"phase": "bringing_back", "pid": 7, "host": "target"}
    assert service_line(report).startswith("SERVICE NOT YET BACK: http://h:1: its keeper, process 7 on target")
    assert not is_back(report)
