"""The settings of the server: all of them with their source, and changes of dynamic ones."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...actors.errors import CoordinatorError, ErrorCode
from ..common.errors import StartError
from ..security.resources import CLUSTER_NAME, Operation
from ..settings.dynamic import AT_START, DynamicSettings
from ..settings.listener_limits import find_row
from ..settings.table import SETTINGS, parse_value
from .backend import Backend
from .changing import Body, Changing, asked_by, read_body
from .guard import USER_KEY
from .json_replies import JsonResponse
from .problems import BadBody

CLUSTER: Final = f"Cluster:{CLUSTER_NAME}"


class SettingsApi:
    """``backend`` reads them, ``changing`` changes some."""

    def __init__(self, backend: Backend, changing: Changing) -> None:
        self._backend = backend
        self._changing = changing

    async def read(self) -> list[dict[str, Any]]:
        async def ask() -> list[dict[str, Any]]:
            node = self._backend.node()
            return settings_json(node.configs, node.services.options.given)

        return await self._backend.ask(ask)

    async def get(self, request: Request) -> Response:
        return JsonResponse({"items": await self.read()})

    async def patch(self, request: Request) -> Response:
        """Change dynamic settings of this server, as one change."""
        body = await read_body(request, ("values",))
        await self.change(request, body, parse_values(body))
        return await self.get(request)

    async def change(self, request: Request, body: Body, values: dict[str, Any]) -> None:
        """Raises BadBody and CoordinatorError."""
        is_local, caller = comes_from_here(request), asked_by(request, body["reason"])

        async def make() -> None:
            services = self._backend.node().services
            try:
                check_allowed(services.options.dynamic_settings, is_local=is_local)
            except CoordinatorError:
                services.audit.denied(caller.who, caller.asked, Operation.ALTER_CONFIGS.name, [CLUSTER])
                raise
            await self._backend.admin.set(**values)

        try:
            await self._changing.run(request, body, make)
        except StartError as error:
            raise BadBody(str(error)) from error


def check_allowed(dynamic_settings: str, *, is_local: bool) -> None:
    """Raises CoordinatorError unless ``--dynamic-settings`` allows this client to change settings."""
    if dynamic_settings == "all" or (dynamic_settings == "local" and is_local):
        return
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    who = "nobody" if dynamic_settings == "none" else "only clients on its own machine, without a proxy,"
    raise CoordinatorError(
        code, f"settings: {code.name}, with --dynamic-settings {dynamic_settings} {who} may change settings"
    )


def comes_from_here(request: Request) -> bool:
    """Whether the client is on this machine. Behind a proxy that names users it may be anywhere."""
    if request.scope.get(USER_KEY) or request.client is None:
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def parse_values(body: Body) -> dict[str, float | bool | str | None]:
    """By name; null for the value of the start. Raises BadBody."""
    values = body.get("values")
    if not isinstance(values, dict) or not values:
        raise BadBody(f'values {values!r:.100}: expected an object as in {{"log_cleaner_min_cleanable_ratio": 0.3}}')
    for name, value in values.items():
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise BadBody(f"{name[:100]} {value!r:.100}: expected a number, true, false, a text, or null")
    return values


def from_text(name: str, text: str) -> float | bool | str:
    """The value of a setting as a form has it; the text itself, which is refused, if it has another type."""
    value = parse_value(find_row(name), text)
    return text if value is None else value


def settings_json(configs: DynamicSettings, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """All settings with their source: "default", "--set" or a file's name, or "dynamic" for those changed since.

    Limits of single listeners are there if they were given or changed. ``given``: sources by name.
    """
    limits = configs.listener_limits
    changed = {*configs.all_brokers, *configs.broker}
    sources = {**given, **dict.fromkeys(limits.given, AT_START), **dict.fromkeys(changed, "dynamic")}
    values = configs.values()
    return [
        {
            "name": setting.name,
            "value": values[setting.name],
            "default": setting.default,
            "source": sources.get(setting.name, "default"),
            "is_dynamic": setting.is_dynamic,
            "doc": setting.doc,
        }
        for setting in (*SETTINGS, *limits.set_rows())
    ]
