"""The web page in a browser: with the keyboard, without JavaScript, in the dark, for screen readers, with many rows.

Goldens are what a screen reader gets. With CALLBOARD_WRITE_GOLDENS=1 they are written again.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from page_site import CHROMIUM, NO_CHROMIUM, TOPICS, Site, serving_page

from callboard import Coordinator
from callboard.runtime.web.page.table import PAGES

if not CHROMIUM.exists():
    pytest.skip(NO_CHROMIUM, allow_module_level=True)

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

GOLDENS: Final = Path(__file__).parent / "screen_reader"
DEADLINE_MS: Final = 60_000
MEMBERS: Final = 500
GROUPS: Final = 1000
HOSTILE: Final = 'evil\u202e\n<img src=x onerror=alert(1)>"'
NOTHING_FOCUSED: Final = "document.activeElement === document.body"
PATHS: Final = (
    "/?limit=5",
    *(page.path for page in PAGES if page.nav and page.path != "/"),
    *(
        f"/groups/orders-service{tab}"
        for tab in ("", "?tab=members", "?tab=partitions", "?tab=rebalances", "?tab=acls")
    ),
    "/groups/orders-service/reset?topic=orders&to=latest",
    "/groups/orders-service/evict",
    "/groups/nightly-0000/delete",
    "/groups/nightly-0000/delete-offsets",
    "/settings/group_max_session_timeout_ms",
    "/log/compact",
    "/topics/orders",
    "/groups/nowhere",
    "/?prefix=nowhere",
)
DARK_PATHS: Final = ("/?limit=5", "/groups/orders-service", "/groups/orders-service/reset?topic=orders&to=latest")


async def fill(site: Site, stack: AsyncExitStack) -> None:
    coordinator = site.coordinator
    for number in range(GROUPS):
        await coordinator.reset(f"nightly-{number:04}", {("payments", 0): 0})
    await coordinator.reset(HOSTILE, {("payments", 0): 0})
    await coordinator.reset("orders-service", {("orders", 0): 12, ("orders", 1): 7})
    await site.join(stack, "orders-service", "worker-1", "orders")
    await coordinator.reset("payments-service", {("payments", 0): 12})
    await asyncio.gather(*(site.join(stack, "payments-service", f"payer-{number}", "payments") for number in (1, 2)))
    members = (site.join(stack, "clicks-counter", f"counter-{number:03}", "clicks") for number in range(MEMBERS))
    await asyncio.gather(*members)
    while len((await coordinator.groups(states=["Stable"])).groups) < 3:
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving_page(fill) as served:
        while _listed_members(served, "orders-service") is None:
            time.sleep(0.05)
        yield served


def _listed_members(site: Site, group: str) -> int | None:
    """None while the figures of the group are not in the list yet."""
    [row] = httpx.get(f"{site.url}/api/v1/groups?prefix={group}").json()["items"]
    members: int | None = row["members"]
    return members


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=DEADLINE_MS)
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opened(browser: Browser, site: Site, **options: Any) -> Iterator[Page]:
    """A page of a browser with nothing in it. It must print no error: the policy of content refuses nothing."""
    context = browser.new_context(base_url=site.url, **options)
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    printed: list[str] = []
    page.on("console", lambda message: printed.append(message.text))
    page.on("pageerror", lambda error: printed.append(str(error)))
    page.on("dialog", lambda dialog: printed.append(dialog.message))
    yield page
    context.close()
    assert [text for text in printed if "404" not in text] == []


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with opened(browser, site, viewport={"width": 1280, "height": 800}) as made:
        yield made


def test_axe_finds_nothing(browser: Browser, site: Site) -> None:
    """In the dark only the colours are others."""
    found = {}
    with opened(browser, site) as page:
        for path in PATHS:
            found[path] = _violations(page, path, {"resultTypes": ["violations"]})
        page.emulate_media(color_scheme="dark")
        for path in DARK_PATHS:
            found[f"dark {path}"] = _violations(page, path, {"runOnly": ["color-contrast"]})
    assert {path: texts for path, texts in found.items() if texts} == {}


def _violations(page: Page, path: str, options: Any) -> list[str]:
    page.goto(path)
    violations = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in violations]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("groups", "/?prefix=orders-service"),
        ("group", "/groups/orders-service"),
        ("members", "/groups/orders-service?tab=members"),
        ("partitions", "/groups/orders-service?tab=partitions"),
        ("reset", "/groups/orders-service/reset?topic=orders&to=latest"),
        ("rebalances", "/groups/orders-service?tab=rebalances"),
        ("evict", "/groups/orders-service/evict"),
        ("delete-offsets", "/groups/orders-service/delete-offsets?topic=orders"),
        ("delete", "/groups/nightly-0000/delete"),
        ("topics", "/topics?prefix=orders"),
        ("topic", "/topics/orders"),
        ("compaction", "/log/compact"),
        ("audit", "/audit"),
        ("setting", "/settings/group_max_session_timeout_ms"),
        ("error", "/groups/nowhere"),
    ],
)
def test_screen_reader_gets(browser: Browser, site: Site, name: str, path: str) -> None:
    with opened(browser, site, java_script_enabled=False) as page:
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        text = _without_what_differs(page.locator("main").aria_snapshot())
    _compare(name, text)


@pytest.mark.parametrize("name", ["actors", "log", "settings"])
def test_screen_reader_gets_columns_of(browser: Browser, site: Site, name: str) -> None:
    """The rows differ, or are all settings."""
    with opened(browser, site, java_script_enabled=False) as page:
        page.goto(f"/{name}")
        text = page.locator("main thead").aria_snapshot()
    _compare(name, text)


def _compare(name: str, text: str) -> None:
    golden = GOLDENS / f"{name}.txt"
    if os.environ.get("CALLBOARD_WRITE_GOLDENS"):
        golden.write_text(text + "\n")
    assert text + "\n" == golden.read_text()


def _without_what_differs(text: str) -> str:
    """Without times, durations, generations, random ids, and figures that other tests change."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", text)
    text = re.sub(r"\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\b\d{9,}\b", "GENERATION", text)
    text = re.sub(r"\b[\d.]+ (ms|s)\b", "DURATION", text)
    text = re.sub(r"\b[\d,]+ (in all|Empty|Stable)\b", r"COUNT \1", text)
    text = re.sub(r"(it is stable with 1 member);.*\.", r"\1.", text)  # what a busy machine was slow at
    text = re.sub(r"(term: Commits a minute\s+- definition: ).*", r"\1RATE", text)
    return re.sub(r"just now|\d+ min ago", "AGO", text)


def test_keyboard_is_enough(page: Page) -> None:
    page.goto("/?prefix=orders")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    link = page.get_by_role("link", name="orders-service")
    for _ in range(40):
        page.keyboard.press("Tab")
        if link.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders-service")).to_be_visible()
    page.get_by_role("link", name="Members 1").press("Enter")
    page.get_by_role("checkbox", name="Choose worker-1").press("Space")
    page.get_by_role("button", name="Remove the ticked members").press("Enter")
    expect(page.get_by_text("1 of 1 member is removed")).to_be_visible()


def test_change_without_javascript(browser: Browser, site: Site) -> None:
    with opened(browser, site, java_script_enabled=False) as page:
        page.goto("/")
        page.get_by_label("Name has").fill("nightly-09")
        page.get_by_role("button", name="Filter").click()
        expect(page.get_by_role("row")).to_have_count(51)
        page.get_by_role("link", name="Next page").click()
        page.get_by_role("link", name="nightly-0999").click()
        expect(page.get_by_role("button", name="Live")).to_be_hidden()
        page.get_by_role("link", name="Delete group").click()
        page.get_by_label("Reason").fill("it was a test")
        page.get_by_role("button", name="Delete group").click()
        expect(page.get_by_text("The change is durable.")).to_be_visible()
        page.get_by_role("link", name="nightly-0999").click()
        expect(page.get_by_role("heading", name="Not Found")).to_be_visible()


def test_reset_shows_that_members_return(page: Page) -> None:
    page.goto("/groups/payments-service/reset?topic=payments")
    page.get_by_label("the first record", exact=True).check()
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_label("Reason").fill("release 7 skipped payments")
    page.get_by_role("button", name="Reset offsets").click()
    assert "/changes/" not in page.url  # the browser asks for the name first
    page.get_by_label("type its name").fill("payments-service")
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.get_by_text(re.compile("2 of 2 members are back after .*, all positions fetched"))).to_be_visible(
        timeout=30_000
    )
    expect(page.get_by_role("row", name="payments 0 12 0 12 again")).to_be_visible()


def test_page_is_kept_up_to_date(site: Site, page: Page) -> None:
    coordinator = site.coordinator
    site.call(coordinator.reset("changing", {("payments", 0): 0}))
    page.goto("/groups/changing?tab=partitions")
    box = page.get_by_role("checkbox", name="Choose partition 0 of payments")
    box.check()
    box.focus()
    page.evaluate("window.isTheSamePage = true")
    site.call(coordinator.reset("changing", {("payments", 0): 5, ("payments", 1): 3}))
    expect(page.get_by_role("cell", name="5", exact=True)).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(3)
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    assert page.evaluate("window.isTheSamePage")

    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "true")
    site.call(coordinator.delete("changing"))
    page.get_by_role("button", name="Paused").click()
    expect(page.get_by_role("button", name="Not updated")).to_have_attribute("title", re.compile("no such group"))


def test_opened_details_stay_open(site: Site, page: Page) -> None:
    page.goto("/groups/payments-service?tab=rebalances")
    page.locator("summary").first.click()
    count = page.get_by_role("row").count()
    site.call(site.coordinator.remove_members("payments-service", reason="a test"))
    expect(page.get_by_role("row")).not_to_have_count(count)
    assert page.locator("details[open]").count() == 1


def test_browser_polls_where_streams_do_not_pass(site: Site, page: Page) -> None:
    """A proxy that keeps all of an answer until its end, as many do."""
    page.route("**/*", lambda route: None if _is_stream(route.request) else route.fallback())
    site.call(site.coordinator.reset("polled", {("payments", 0): 0}))
    page.clock.install()
    page.goto("/groups/polled?tab=partitions")
    expect(page.get_by_role("row")).to_have_count(2)
    site.call(site.coordinator.reset("polled", {("payments", 0): 5}))
    page.clock.run_for(10_000)
    expect(page.get_by_role("cell", name="5", exact=True)).to_be_visible()


def _is_stream(request: Any) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


def test_many_rows(page: Page) -> None:
    page.goto("/groups/clicks-counter?tab=members")
    expect(page.get_by_role("row")).to_have_count(MEMBERS + 1)
    page.goto("/?prefix=nightly")
    expect(page.get_by_role("row")).to_have_count(51)
    expect(page.get_by_role("list", name="Groups by state")).to_contain_text("Empty")


def test_text_of_clients_is_only_text(page: Page) -> None:
    page.goto("/?prefix=evil")
    page.get_by_role("link", name=r"evil\u202e\n<img src=x onerror=alert(1)>").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(r'evil\u202e\n<img src=x onerror=alert(1)>"')
    assert page.locator("img").count() == 0


def test_dark_mode_is_dark(browser: Browser, site: Site) -> None:
    colors = {}
    for scheme in ("light", "dark"):
        with opened(browser, site, color_scheme=scheme) as page:
            page.goto("/")
            colors[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light, dark = (sum(map(int, re.findall(r"\d+", colors[scheme]))) for scheme in ("light", "dark"))
    assert light > 700 > 100 > dark


def test_narrow_windows_do_not_scroll_sideways(browser: Browser, site: Site) -> None:
    with opened(browser, site, viewport={"width": 360, "height": 640}) as page:
        assert wide_paths(page, PATHS) == []


def wide_paths(page: Page, paths: Sequence[str]) -> list[str]:
    wide = []
    for path in paths:
        page.goto(path)
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(path)
    return wide


def test_narrow_windows_of_a_cluster_do_not_scroll_sideways(browser: Browser, tmp_path: Path) -> None:
    """Three nodes, of which two are killed in the end: the list names them."""
    (tmp_path / "store").mkdir()
    options: dict[str, Any] = {
        "cluster": (tmp_path / "store").as_uri(),
        "offsets_topic_num_partitions": 6,
        "transaction_state_log_num_partitions": 3,
    }
    others: list[Coordinator] = []

    async def fill_cluster(site: Site, stack: AsyncExitStack) -> None:
        for name in ("b", "c"):
            node = Coordinator(tmp_path / name, topics=TOPICS, node_name=name, **options)
            others.append(await stack.enter_async_context(node))
        for number in range(12):
            await site.coordinator.reset(f"nightly-{number:04}", {("payments", 0): 0})
        await site.join(stack, "orders-service", "worker-1", "orders")

    with (
        serving_page(fill_cluster, data=tmp_path / "a", node_name="a", **options) as site,
        opened(browser, site, viewport={"width": 400, "height": 800}) as page,
    ):
        while _listed_members(site, "orders-service") is None:
            time.sleep(0.05)
        assert wide_paths(page, PATHS) == []
        for node in others:
            site.call(node._embedded.kill("killed"))
        page.goto("/")
        expect(page.get_by_text(re.compile("Groups are missing: node.* of the cluster"))).to_be_visible()
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
