"""The page of a report in a real browser: offline, sorted, picked, linked, and no wider than a telephone."""

from pathlib import Path

import pytest
from chromium import Browser
from synthetic_run import whole_run

from raybench.analysis.merge import merge
from raybench.report.published import read_published, write_imported
from raybench.report.source import read_source
from raybench.report.text import ENGLISH
from raybench.report.text_zh import CHINESE
from raybench.report.write import write_report

DESK, TELEPHONE = 1440, 390


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = whole_run(tmp_path_factory.mktemp("page") / "run")
    merge(run)
    for text in (ENGLISH, CHINESE):
        write_report(read_source(run), run.path, text)
    return run.path


@pytest.fixture
def page(folder: Path) -> Path:
    return folder / "report.html"


@pytest.mark.parametrize("name", ["report.html", "report.zh.html"])
@pytest.mark.parametrize("width", [DESK, TELEPHONE])
def test_the_page_is_silent_offline_and_as_wide_as_its_window(
    browser: Browser, folder: Path, name: str, width: int
) -> None:
    browser.open(folder / name, width=width)
    assert browser.texts("#shown h3")
    assert browser.messages() == []
    assert [url for url in browser.requested() if not url.startswith(("data:", "about:"))] == [
        (folder / name).as_uri()
    ]
    # not window.innerWidth: a telephone's window grows with a page that is too wide
    assert browser.ask(f"document.documentElement.scrollWidth <= {width}")


@pytest.mark.parametrize("width", [DESK, TELEPHONE])
def test_no_figure_and_no_label_leaves_its_frame(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    out = browser.ask(
        """Array.from(document.querySelectorAll("figure svg text")).filter((text) => {
            const own = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
            return own.left < frame.left - 1 || own.right > frame.right + 1;
        }).map((text) => text.textContent)"""
    )
    assert out == []


def test_words_of_a_legend_do_not_overlap(browser: Browser, page: Path) -> None:
    browser.open(page)
    overlaps = browser.ask(
        """Array.from(document.querySelectorAll("figure svg")).flatMap((svg) => {
            const boxes = Array.from(svg.querySelectorAll(":scope > text"), (t) => t.getBoundingClientRect());
            return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => Math.abs(a.top - b.top) < 4
                && a.left < b.right && b.left < a.right).map(() => svg.textContent.slice(0, 40)));
        })"""
    )
    assert overlaps == []


def test_unknown_values_stay_last_whichever_way_a_column_is_sorted(browser: Browser, page: Path) -> None:
    browser.open(page)
    heading, column = "#points th:nth-child(12) button", "#points tbody td:nth-child(12)"
    browser.click(heading)
    assert browser.texts(column) == ["65.0 GiB", "70.0 GiB", "—", "—", "—"]
    browser.click(heading)
    assert browser.texts(column) == ["70.0 GiB", "65.0 GiB", "—", "—", "—"]
    assert browser.texts("#points th[aria-sort=descending]") == ["VRAM peak"]


def test_a_column_of_numbers_is_sorted_by_value_and_not_by_its_letters(
    browser: Browser, golden: Path, tmp_path: Path
) -> None:
    seed = write_imported(read_published(golden / "seed1" / "appendix_b.yaml"), tmp_path / "seed1")
    browser.open(write_report(read_source(seed), seed.path).page)
    table = "#results h3:nth-of-type(2) + .scroll "  # 1k-128
    browser.click(f"{table}th:nth-child(5) button")
    shown = browser.texts(f"{table}tbody td:nth-child(5)")
    assert shown == ["330 ms", "390 ms", "1.69 s", "2.17 s", "4.87 s", "7.09 s", "12.15 s", "19.96 s"]


def test_words_are_sorted_by_their_letters(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click("#points th:nth-child(14) button")
    verdicts = browser.texts("#points tbody td:nth-child(14)")
    assert verdicts == sorted(verdicts)


def test_the_picker_shows_every_point_and_steps_to_its_neighbours(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert len(browser.texts("#pick option")) == 5
    first = browser.texts("#shown h3")
    assert browser.ask("document.getElementById('previous').disabled") is True
    browser.click("#next")
    second = browser.texts("#shown h3")
    assert second != first
    assert browser.ask("location.hash") != ""
    browser.click("#previous")
    assert browser.texts("#shown h3") == first


def test_a_number_leads_to_the_records_behind_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.ask("document.querySelector('#results tbody tr:nth-child(3) td:nth-child(5) a').click()")
    assert browser.texts("#shown h3") == ["tp2pp4 · 1k · C=4 †"]
    rows = browser.texts("#shown .requests tbody tr")
    assert len(rows) == 4
    assert "TTFT P95" in " ".join(rows)
    query = " ".join(browser.texts("#shown pre"))
    assert "raybench query" in query
    assert "'tp2pp4/1k/c4'" in query
    assert "requests.parquet" in " ".join(browser.texts("#shown p code"))


def test_an_address_opens_its_point(browser: Browser, page: Path) -> None:
    browser.open(page, fragment="#point-2")
    assert browser.texts("#shown h3") == ["tp8 · 1k · C=2"]
    assert "worker w1 (killed)" in " ".join(browser.texts("#shown .verdict"))
    assert (
        browser.ask("getComputedStyle(document.querySelector('#shown dd')).textDecorationLine") == "line-through"
    )


def test_an_address_of_no_point_is_ignored(browser: Browser, page: Path) -> None:
    browser.open(page, fragment="#point-99")
    assert browser.texts("#shown h3") == ["tp2pp4 · 1k · C=2"]
    assert browser.messages() == []


def test_requests_of_a_point_are_sorted(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click("#shown .requests th:nth-child(2) button")
    browser.click("#shown .requests th:nth-child(2) button")
    assert [float(text) for text in browser.texts("#shown .requests td:nth-child(2)")] == [1.0, 1.0, 0.0, 0.0]


def test_every_link_inside_the_page_leads_somewhere(browser: Browser, page: Path) -> None:
    browser.open(page)
    lost = browser.ask(
        """Array.from(document.querySelectorAll("a[href]"), (a) => a.getAttribute("href")).filter((to) =>
            !to.startsWith("#") || !(document.getElementById(to.slice(1))
                || document.getElementById(to.replace("#point-", "template-"))))"""
    )
    assert lost == []


def test_names_are_text_and_never_markup(browser: Browser, tmp_path: Path) -> None:
    """Reasons and error messages come from servers: none may become part of the page."""
    run = whole_run(tmp_path / "run")
    attack = '</script><script>document.title = "taken"</script><img src=x onerror="document.title = 1">'
    run.journal.write_text(run.journal.read_text().replace("client lost", attack.replace('"', '\\"')))
    merge(run)
    browser.open(write_report(read_source(run), run.path).page, fragment="#point-2")
    assert attack in " ".join(browser.texts("#shown .verdict"))
    assert str(browser.ask("document.title")).startswith("Benchmark report")
    assert browser.ask("document.images.length") == 0
