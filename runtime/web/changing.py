"""The handlers of changes. Each needs a reason, which is in the audit trail with the user and the address."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import pykka
from starlette.requests import Request

from ..embed.audited_requests import ASKED_BY
from ..embed.results import Target
from ..kafka.authentication.principal import ANONYMOUS, USER, Principal
from ..security.audit import Asked, AskedBy, Who
from .backend import Backend, Unavailable
from .guard import USER_KEY
from .json_replies import JsonResponse
from .problems import BadBody
from .reading import path_text
from .replies import reset_json
from .reset_targets import parse_target
from .snapshots import Snapshots

log = logging.getLogger("callboard.runtime.web")

BODY_BYTES_MAX: Final = 1_000_000
BODY_TIMEOUT_S: Final = 10.0
REASON_CHARACTERS_MAX: Final = 1000
ITEMS_MAX: Final = 10_000
LISTENER: Final = "web"

T = TypeVar("T")
Body = dict[str, Any]


class Changing:
    """``backend`` makes the changes, and ``snapshots`` reads a changed group again."""

    def __init__(self, backend: Backend, snapshots: Snapshots) -> None:
        self._backend = backend
        self._snapshots = snapshots

    async def evict(self, request: Request) -> JsonResponse:
        """Remove members, all if none are named."""
        group, body = path_text(request, "group"), await read_body(request, ("members", "instances"))
        members, instances = texts(body, "members"), texts(body, "instances")
        admin = self._backend.admin
        removed = await self.change(
            request,
            body,
            lambda: admin.remove_members(group, member_ids=members, instance_ids=instances, reason=body["reason"]),
        )
        return JsonResponse({"group": group, "removed": list(removed)})

    async def reset(self, request: Request) -> JsonResponse:
        """Remove all members and set offsets, as one change; or say what that would do."""
        group, body = path_text(request, "group"), await read_body(request, ("targets", "dry_run"))
        chosen, is_plan, reason = targets(body), flag(body, "dry_run"), body["reason"]
        admin = self._backend.admin
        made = await self.change(
            request, body, lambda: admin.evict_and_reset(group, chosen, reason=reason, dry_run=is_plan)
        )
        return JsonResponse(await asyncio.to_thread(reset_json, made, is_plan))

    async def delete(self, request: Request) -> JsonResponse:
        group, body = path_text(request, "group"), await read_body(request)
        await self.change(request, body, lambda: self._backend.admin.delete(group))
        return JsonResponse({"group": group})

    async def delete_offsets(self, request: Request) -> JsonResponse:
        group, body = path_text(request, "group"), await read_body(request, ("partitions",))
        chosen = partitions(body)
        await self.change(request, body, lambda: self._backend.admin.delete_offsets(group, chosen))
        return JsonResponse({"group": group})

    async def change(self, request: Request, body: Body, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change of the group in the path, on the coordinator's loop and on behalf of who asks."""
        try:
            return await self.run(request, body, change)
        finally:
            await self.reread(path_text(request, "group"))

    async def run(self, request: Request, body: Body, change: Callable[[], Awaitable[T]]) -> T:
        """The same for a change of any group, which is to be read again afterwards."""

        async def make() -> T:
            ASKED_BY.set(asked_by(request, body["reason"]))
            return await change()

        return await self._backend.change(make)

    async def reread(self, group: str) -> None:
        """Read a group again that was changed. If that fails, the answer is still what the change has given."""
        try:
            await self._snapshots.reread(group)
        except (Unavailable, pykka.ActorDeadError) as error:
            log.info("group %r was not read after a change: %s", group, error)


def asked_by(request: Request, reason: str) -> AskedBy:
    """On whose behalf a change is made."""
    route = request.scope["route"]
    return AskedBy(who_asks(request), Asked(f"{request.method} {route.path}"), reason)


def who_asks(request: Request) -> Who:
    """The user whom the proxy names, if there is one, and the address that the request came from."""
    user = request.scope.get(USER_KEY)
    host, port = request.client or ("", None)
    return Who(str(Principal(USER, user) if user else ANONYMOUS), host, port, "", LISTENER)


# The body ------------------------------------------------------------------------------------------------------------


async def read_bytes(request: Request) -> bytes:
    """The body of a request. Raises BadBody if it is too long, or does not come."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > BODY_BYTES_MAX:
                    raise BadBody(f"the body is too long, expected at most {BODY_BYTES_MAX} bytes")
    except TimeoutError:
        raise BadBody(f"the body has not come in {BODY_TIMEOUT_S:.0f} s") from None
    return bytes(data)


async def read_body(request: Request, names: tuple[str, ...] = ()) -> Body:
    """A JSON object with a reason and these optional names. Raises BadBody."""
    data = await read_bytes(request)
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise BadBody(f'the body {data[:100]!r}: expected JSON, as in {{"reason": "..."}}') from None
    if not isinstance(body, dict):
        raise BadBody(f'the body {body!r:.100}: expected an object, as in {{"reason": "..."}}')
    unknown = body.keys() - {"reason", *names}
    if unknown:
        raise BadBody(f"unknown {min(unknown)[:100]!r} in the body: expected some of {', '.join(('reason', *names))}")
    check_reason(body.get("reason"))
    return body


def check_reason(reason: object) -> None:
    """Raises BadBody."""
    if not isinstance(reason, str) or not 1 <= len(reason.strip()) <= REASON_CHARACTERS_MAX:
        raise BadBody(f"reason {reason!r:.100}: expected a text of 1 to {REASON_CHARACTERS_MAX} characters")
    try:
        reason.encode()
    except UnicodeEncodeError as error:
        surrogate = reason[error.start]
        raise BadBody(f"reason {reason!r:.100}: {surrogate!r} is half of a character, expected whole ones") from None


def texts(body: Body, name: str) -> list[str]:
    """A list of texts; empty if it is not there. Raises BadBody, also for an empty list: it would mean all."""
    if name not in body:
        return []
    values: list[str] = body[name]
    is_list = isinstance(values, list) and 1 <= len(values) <= ITEMS_MAX
    if not is_list or not all(isinstance(each, str) for each in values):
        raise BadBody(f"{name} {values!r:.100}: expected a list of 1 to {ITEMS_MAX} texts, or leave it out")
    return values


def partitions(body: Body) -> list[tuple[str, int]]:
    """Partitions as objects with a topic and a partition. Raises BadBody."""
    values = body.get("partitions")
    if not isinstance(values, list) or not 1 <= len(values) <= ITEMS_MAX:
        raise BadBody(f"partitions {values!r:.100}: expected a list of 1 to {ITEMS_MAX} partitions")
    return [_partition(value) for value in values]


def flag(body: Body, name: str) -> bool:
    """False if it is not there. Raises BadBody."""
    value = body.get(name, False)
    if type(value) is not bool:
        raise BadBody(f"{name} {value!r:.100}: expected true or false")
    return value


def targets(body: Body) -> dict[tuple[str, int] | str, Target | None]:
    """By partition, or by topic for all partitions that are not named. Raises BadBody."""
    values = body.get("targets")
    if not isinstance(values, list) or not 1 <= len(values) <= ITEMS_MAX:
        raise BadBody(f"targets {values!r:.100}: expected a list of 1 to {ITEMS_MAX} targets")
    found: dict[tuple[str, int] | str, Target | None] = {}
    for value in values:
        if not isinstance(value, dict) or not {"topic", "to"} <= value.keys() <= {"topic", "partition", "to"}:
            raise BadBody(f'target {value!r:.100}: expected an object as in {{"topic": "jobs", "to": "earliest"}}')
        to = parse_target(value["to"])
        named = {name: value[name] for name in ("topic", "partition") if name in value}
        key = _partition(named) if "partition" in named else _partition({**named, "partition": 0})[0]
        if key in found:
            raise BadBody(f"target {value!r:.100}: there are two for this partition or topic")
        found[key] = to
    return found


def _partition(value: Any) -> tuple[str, int]:
    if isinstance(value, dict) and value.keys() == {"topic", "partition"}:
        topic, partition = value["topic"], value["partition"]
        if isinstance(topic, str) and type(partition) is int and 0 <= partition < 2**31:
            return topic, partition
    raise BadBody(f'partition {value!r:.100}: expected an object as in {{"topic": "jobs", "partition": 0}}')
