"""The page in a headless Chromium: what is seen, on a phone and on a desk, and that no text becomes markup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bridge.mysql.state.ddl_journal import JournalState
from bridge.watch.document import TargetLook
from bridge.watch.watch import Watch
from tests.support.browser import Browser, Page, browser
from tests.support.watched import LOOK, MadeLookups, MadeSampler, change, watching

pytestmark = pytest.mark.server
EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests of the file."""
    with browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def opened(chromium: Browser, watch: Watch, width: int = 1280, *, dark: bool = False) -> Page:
    """The page, once it shows the status."""
    page = chromium.open(f"http://{watch.address}/")
    page.set_size(width, 900, dark=dark)
    page.wait_for("document.querySelectorAll('#partitions tbody tr').length > 0")
    return page


def text(page: Page, selector: str) -> str:
    """What is read there."""
    return str(page.value(f"document.querySelector({selector!r}).innerText"))


def test_what_an_operator_looks_for_is_there(chromium: Browser) -> None:
    """State, lag, chart, partitions with the one that holds back, tables, schema changes, quarantine; it is live."""
    with watching(MadeSampler()) as watch:
        page = opened(chromium, watch)
        assert (text(page, "h1"), text(page, "#state")) == ("shop", "applying")
        page.wait_for("document.querySelector('#chart polygon.area-apply') !== null")
        assert "shop-changes/7" in text(page, "tr.slow")
        assert "shop.order_lines" in text(page, "#tables")
        changes = text(page, "#changes")
        assert "DROP TABLE `shop`.`carts`" in changes
        assert "utf8mb4_0900_ai_ci → utf8mb4_unicode_520_ci" in changes
        assert "1 bad-value, 1 target-refused" in text(page, "#counts")
        assert "partition 7 has had no boundary" in text(page, "#waiting")
        assert "the server" in text(page, "#phases")
        rows = text(page, "#tables tbody td:nth-child(3)")
        page.wait_for(f"document.querySelector('#tables tbody td:nth-child(3)').innerText !== {rows!r}")
        assert page.messages == []
    page.wait_for("document.querySelector('#state').innerText === 'no answer'", 40)
    assert "shop.order_lines" in text(page, "#tables")


def test_numbers_are_short_and_right(chromium: Browser) -> None:
    """Rounded to three digits, and no digit before the point is lost."""
    with watching(MadeSampler()) as watch:
        page = opened(chromium, watch)
        shown = page.value("[0, 9999, 10000, 220000, 1204000, 500e6, 7.1e9].map(short)")
        assert shown == ["0", "9,999", "10k", "220k", "1.2M", "500M", "7.1G"]
        assert page.value("[0, 999, 1536, 41 * 2 ** 20].map(size)") == ["0 B", "999 B", "1.5 KiB", "41 MiB"]
        assert page.value("[0.44, 59, 130, 7300, 180000].map(span)") == [
            *("0.4 s", "59 s", "2 min 10 s", "2 h 1 min", "2 d 2 h"),
        ]


def test_no_text_becomes_markup(chromium: Browser) -> None:
    """Whatever a table, a pipeline, a schema change or a reason is called."""
    look = TargetLook((change(0, JournalState.HELD, EVIL, EVIL + " ", why=EVIL),), {EVIL: 1}, {EVIL: 2})
    with watching(MadeSampler(((EVIL, EVIL),), held=EVIL), MadeLookups(look), name=EVIL) as watch:
        page = opened(chromium, watch)
        page.wait_for("document.querySelector('#state').innerText === 'not applying'")
        assert page.value("document.querySelectorAll('main img, main script, #reason *').length") == 0
        for place in ("h1", "#reason", "#waiting", "#tables", "#changes", "#counts"):
            assert "onerror" in text(page, place), place
        assert "owned" not in str(page.value("document.title")).partition("<")[0]
        assert page.messages == []


def test_it_fits_a_phone_in_light_and_dark(chromium: Browser) -> None:
    """Nothing is wider than the screen, however long the names are; dark is dark."""
    long = (("a_schema_with_a_name_of_some_length", "and_a_table_with_a_name_that_is_even_longer_than_that"),)
    look = replace(LOOK, changes=(change(0, JournalState.DONE, f"ALTER TABLE t ADD COLUMN {'x' * 300} INT"),))
    with watching(MadeSampler(long), MadeLookups(look)) as watch:
        page = opened(chromium, watch, 360, dark=True)
        assert page.value("document.documentElement.scrollWidth") <= 360
        dark = page.value("getComputedStyle(document.body).backgroundColor")
        page.set_size(360, 800, dark=False)
        assert page.value("getComputedStyle(document.body).backgroundColor") != dark


def test_what_the_target_has_not_told_is_not_nothing(chromium: Browser) -> None:
    """Before it was asked nobody knows whether schema changes are held and messages quarantined."""
    with watching(MadeSampler(), MadeLookups(TargetLook())) as watch:
        page = opened(chromium, watch)
        assert text(page, "#changes") == "the target has not told yet"
        assert "the target has not told yet" in text(page, "#counts")
    with watching(MadeSampler(), MadeLookups(TargetLook(looked_at=1.0))) as watch:
        page = opened(chromium, watch)
        assert text(page, "#changes") == "none so far"
        assert "nothing" in text(page, "#counts")


def test_a_pipeline_that_starts_says_so(chromium: Browser) -> None:
    """Before there is anything to draw."""
    with watching() as watch:
        page = chromium.open(f"http://{watch.address}/")
        page.wait_for("document.querySelector('#reason')?.innerText === 'the bridge is starting'")
        assert text(page, "#state") == "not applying"
        assert page.messages == []
