"""``callboard.web``: the HTTP API and the web page of a coordinator, as an ASGI app. docs/http.md is its guide.

app.mount("/callboard", callboard.web.app(coordinator))     # in a program with FastAPI or Starlette
"""

from __future__ import annotations

try:
    from callboard.runtime.web.application import app as app
except ModuleNotFoundError as error:
    if error.name not in ("jinja2", "numpy", "starlette"):
        raise
    raise ModuleNotFoundError(
        f"callboard.web needs {error.name}: install it with pip install 'callboard[web]'", name=error.name
    ) from error

__all__ = ["app"]
