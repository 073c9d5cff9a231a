"""The web page as its HTML, and a browser without a screen, for tests."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

import callboard.web
from callboard import Coordinator

ORIGIN = "http://callboard"


class Browser:
    """Follows links and sends forms as a browser does: with its cookies, with Origin, and with all hidden fields."""

    def __init__(self, coordinator: Coordinator, mounted_at: str = "", **options: Any) -> None:
        app = callboard.web.app(coordinator, **options)
        app = Starlette(routes=[Mount(mounted_at, app)]) if mounted_at else app
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN)

    async def get(self, path: str, status: int = 200) -> str:
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        return response.text

    async def send(self, page: str, fields: dict[str, str], status: int = 303) -> str:
        """Send the form of a page that makes a change. Returns where it leads, or the answer."""
        [(path, content)] = re.findall(r'<form [^>]*method="post" action="([^"]*)">(.*?)</form>', page, re.DOTALL)
        hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', content)
        data = [(name, html.unescape(value)) for name, value in hidden]
        response = await self.post(html.unescape(path), httpx.QueryParams([*data, *fields.items()]))
        assert response.status_code == status, response.text
        return response.headers["location"] if status == 303 else response.text

    async def post(self, path: str, fields: httpx.QueryParams, **headers: str) -> httpx.Response:
        sent = {"content-type": "application/x-www-form-urlencoded", "origin": ORIGIN, **headers}
        return await self.client.post(path, content=str(fields), headers=sent)


def rows(page: str) -> list[str]:
    """The text of each row of a page's tables."""
    found = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).replace("\N{EN DASH}", "-").split()) for row in found]
