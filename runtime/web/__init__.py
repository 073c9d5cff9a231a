"""The HTTP API of a coordinator, as an ASGI app. It needs the extra ``web``. docs/http.md is its guide."""
