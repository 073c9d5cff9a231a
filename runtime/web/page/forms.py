"""The pages of actions: choose, look at the plan, confirm with a reason; then the page of the change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ....actors.errors import CoordinatorError
from ....actors.text import printable
from ...embed.reset_progress import missing_members
from ...embed.reset_undo import UndoRefused, UnknownChange
from ...embed.results import GroupMember, ResetChange, ResetProgress
from ...node.reset_records import RemovedMember
from ..changing import check_reason, read_bytes
from ..group_list import BadParameter
from ..guard import USER_KEY
from ..problems import BadBody, problem_of
from ..reading import path_text
from .actions import ACTIONS, Action, Asked
from .changes import Change, Plan, change_of
from .fields import Fields, make_fields, one, parse_form
from .rendering import Renderer, base_of
from .row import Context, Sources
from .tokens import FIELD, Tokens

REFUSED: Final = (CoordinatorError, BadBody, BadParameter, UndoRefused, UnknownChange)
"""What is shown on the form, beside what was chosen."""

CONFIRMING: Final = frozenset({FIELD, "reason", "name"})
"""Fields that say nothing about what is to be done."""


def make_form_routes(sources: Sources, renderer: Renderer) -> list[Route]:
    tokens = Tokens()
    forms = [Form(action, sources, renderer, tokens) for action in ACTIONS]
    return [Route(f"/groups/{{group}}/{form.action.name}", form.answer, methods=["GET", "POST"]) for form in forms]


class Form:
    """The form of an action."""

    def __init__(self, action: Action, sources: Sources, renderer: Renderer, tokens: Tokens) -> None:
        self.action = action
        self._sources = sources
        self._renderer = renderer
        self._tokens = tokens

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            return await self._show(request, make_fields(request.query_params.multi_items()))
        fields = parse_form(await read_bytes(request))
        self._tokens.check(request, one(fields, FIELD))
        try:
            id_ = await self._make(request, fields)
        except REFUSED as error:
            problem = problem_of(request, error)
            return await self._show(request, fields, problem.detail, problem.status)
        return RedirectResponse(f"{base_of(request)}/changes/{id_}", 303)

    async def _make(self, request: Request, fields: Fields) -> str:
        """Make the change. Returns its id. Raises BadBody, BadParameter, CoordinatorError and Unavailable."""
        group, reason = path_text(request, "group"), one(fields, "reason")
        check_reason(reason)
        asked = Asked(self._sources.backend.admin, group, fields, reason)

        async def make() -> Plan:
            members = (await asked.admin.describe(group)).members
            if members and one(fields, "name").strip() not in (group.strip(), printable(group).strip()):
                raise BadBody("the name: expected that of the group, because it has members")
            return await self.action.make(asked)

        plan = await self._sources.changing.change(request, {"reason": reason}, make)
        user = request.scope.get(USER_KEY, "")
        return self._sources.changes.add(Change(group, self.action.title, reason, user, self._sources.now_ms(), plan))

    async def _show(self, request: Request, fields: Fields, problem: str = "", status: int = 200) -> Response:
        group = path_text(request, "group")
        asked = Asked(self._sources.backend.admin, group, fields)
        topics = await self._sources.backend.ask(lambda: _topics_of(asked))
        try:
            plan = await self._sources.backend.ask(lambda: self.action.plan(asked))
        except REFUSED as error:
            found = problem_of(request, error)
            plan, problem = None, problem or found.detail
            status = max(status, found.status)
        browser = self._tokens.browser(request)
        context: dict[str, Any] = {
            "group": group,
            "action": self.action,
            "fields": fields,
            "chosen": [(name, value) for name, values in fields.items() if name not in CONFIRMING for value in values],
            "topics": topics,
            "plan": plan,
            "problem": problem,
            "token": self._tokens.token(request, browser),
        }
        content = await asyncio.to_thread(self._renderer.form, request, "action.html", context)
        response = HTMLResponse(content, status)
        self._tokens.remember(response, request, browser)
        return response


async def _topics_of(asked: Asked) -> list[str]:
    """Those with an offset or an assigned partition. Raises CoordinatorError for an unknown group."""
    members = (await asked.admin.describe(asked.group)).members
    assigned = {topic for member in members for topic, _ in member.assigned or ()}
    return sorted({topic for topic, _ in await asked.admin.offsets(asked.group)} | assigned)


# The page of a change ------------------------------------------------------------------------------------------------


async def show_change(sources: Sources, request: Request) -> Context:
    """What was changed, and whether the members that were removed are back."""
    id_ = path_text(request, "change")
    change = sources.changes.get(id_)
    progress: ResetProgress | None = None
    if change is None or change.plan.change_id:
        progress, reset = await sources.backend.ask(lambda: _reset_now(sources, id_))
        change = change or change_of(reset)
    missing = await _missing(sources, change) if progress is None else progress.missing
    gone = {member.member_id for member in missing}
    rows = [(member, member.member_id not in gone) for member in change.plan.removed]
    return {
        "id": id_,
        "change": change,
        "progress": progress,
        "removed": rows or [(member, False) for member in missing],
        "back": sum(is_back for _, is_back in rows),
        "now_ms": sources.now_ms(),
    }


async def _reset_now(sources: Sources, change_id: str) -> tuple[ResetProgress, ResetChange]:
    """On the coordinator's loop. Raises UnknownChange."""
    progress = await sources.backend.admin.reset_progress(change_id)
    found = [each for each in await sources.backend.admin.resets(progress.group) if each.change_id == change_id]
    if not found:
        raise UnknownChange(change_id)
    return progress, found[0]


async def _missing(sources: Sources, change: Change) -> list[GroupMember]:
    """The members that were removed and are not back."""

    async def ask() -> tuple[GroupMember, ...]:
        try:
            return (await sources.backend.admin.describe(change.group)).members
        except CoordinatorError:  # it was deleted
            return ()

    return still_missing(change.plan, await sources.backend.ask(ask))


def still_missing(plan: Plan, present: Sequence[GroupMember]) -> list[GroupMember]:
    """Members that were not removed do not count as others that are back, whatever their client id."""
    stayed = {member.member_id for member in plan.members} - {member.member_id for member in plan.removed}
    removed = (RemovedMember(*_names(member)) for member in plan.removed)
    missing = missing_members(removed, [member for member in present if member.member_id not in stayed])
    gone = {member.member_id for member in missing}
    return [member for member in plan.removed if member.member_id in gone]


def _names(member: GroupMember) -> tuple[str, str | None, str, str]:
    return member.member_id, member.instance_id, member.client_id, member.client_host
