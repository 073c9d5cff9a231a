"""Makes the pictures of the web page in README.md and docs/page.md: ``python tests/page_pictures.py``. Needs Chromium.

A coordinator has made-up services with records to process. One of them starts a member again and again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from io import BytesIO
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer
from page_site import CHROMIUM, NO_CHROMIUM, Site, serving_page
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from callboard import Coordinator

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
WIDTH: Final = 1180
SERVICES: Final = {
    "billing": ("payments", 3),
    "fraud-check": ("payments", 2),
    "mailer": ("orders", 1),
    "search-index": ("orders", 3),
    "shipping": ("orders", 2),
    "warehouse": ("orders", 2),
}
RESTARTS: Final = 4
PICTURES: Final = {
    "page-groups.png": ("/?sort=-members", "light", 580),
    "page-group.png": ("/groups/shipping", "light", 760),
    "page-rebalances.png": ("/groups/shipping?tab=rebalances", "dark", 700),
    "page-reset.png": ("/groups/billing/reset?topic=payments&to=earliest", "light", 1040),
}


async def fill(site: Site, stack: AsyncExitStack) -> None:
    chance = random.Random(7)
    coordinator = site.coordinator
    await _produce(coordinator.bootstrap, ["orders", "payments"], 500)
    for group, (topic, members) in SERVICES.items():
        await coordinator.reset(group, {(topic, number): chance.randrange(300, 501) for number in range(3)})
        names = (f"{group}-{number}" for number in range(1, members + 1))
        await asyncio.gather(*(site.join(stack, group, name, topic) for name in names))
    for number in range(1, 5):
        await coordinator.reset(f"report-2026-11-{number:02}", {("orders", 0): 500 - 40 * number})
    for _ in range(RESTARTS):
        async with AsyncExitStack() as restarting:
            await site.join(restarting, "shipping", "shipping-3", "orders")
            await asyncio.sleep(1 + chance.random())
        await asyncio.sleep(chance.random())


async def _produce(bootstrap_servers: str, topics: Sequence[str], records: int) -> None:
    """``records``: of each partition."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for topic in topics:
            for number in range(3 * records):
                await producer.send(topic, b"x", partition=number % 3)


async def _go_on(coordinator: Coordinator) -> None:
    """Half a minute of work, after which the list shows how fast lags change."""
    await coordinator.reset("report-2026-11-01", {("orders", 0): 499})
    await asyncio.sleep(31)
    await _produce(coordinator.bootstrap, ["orders"], 40)


def main() -> None:
    if not CHROMIUM.exists():
        raise SystemExit(NO_CHROMIUM)
    with serving_page(fill, listen="127.0.0.1:0") as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        _picture(browser, site.url, "light", 600)
        site.call(_go_on(site.coordinator))
        for name, (path, scheme, height) in PICTURES.items():
            _save(DOCS / name, _picture(browser, site.url + path, scheme, height))
        browser.close()


def _picture(browser: Browser, url: str, scheme: str, height: int) -> bytes:
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light", viewport={"width": WIDTH, "height": height}
    )
    page = context.new_page()
    page.goto(url)
    page.get_by_role("row").nth(1).wait_for()
    page.wait_for_timeout(3000)  # until the figures of all groups are in the list
    picture = page.screenshot()
    context.close()
    return picture


def _save(path: Path, picture: bytes) -> None:
    Image.open(BytesIO(picture)).convert("RGB").save(path, optimize=True)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
