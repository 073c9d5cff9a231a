"""Subscriptions by regular expression: when they are resolved, and what a result changes (KIP-848).

The expressions of a group are resolved together, outside of the decisions about its members. A heartbeat says that
it is time (``Plan.regexes_to_resolve``). Later the result is a decision of its own: it becomes records of type 16, and
the group's epoch rises if an expression matches other topics than before. Until then a new expression matches nothing.

Source: ``maybeUpdateRegularExpressions`` and ``handleRegularExpressionsResult`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto

from ..steps import Steps
from .checks import check_regex
from .messages import RegexesResolved
from .plan import DecisionEnvironment, Plan
from .records import MemberValue, RegexRecord, RegexValue
from .state import GroupState
from .target import next_group_epoch

MIN_INTERVAL_MS = 10_000
"""So long nothing is resolved again, unless no expression of the group has been resolved."""


class RegexChange(Enum):
    """What a heartbeat does to its member's regular expression.

    RESOLVED: the new one has been resolved for other members, or there is none any more. So the group needs a new
    target at once. With UNRESOLVED, the result will bring one.
    """

    NONE = auto()
    UNRESOLVED = auto()
    RESOLVED = auto()


def change_regex(
    state: GroupState, before: MemberValue, after: MemberValue, environment: DecisionEnvironment, plan: Plan
) -> RegexChange:
    """Compare a member with what it was before its heartbeat. Raises CoordinatorError for an invalid expression."""
    if before.regex == after.regex:
        change = RegexChange.NONE
    else:
        change = _change(state, before.regex, after.regex, environment, plan)
    if state.regex_members or after.regex:
        plan.regexes_to_resolve = due_regexes(state, before.regex, after.regex, environment)
    return change


def _change(state: GroupState, old: str, new: str, environment: DecisionEnvironment, plan: Plan) -> RegexChange:
    if state.regex_members.get(old) == 1:
        plan.records.append(RegexRecord(state.group_id, old, None))
    if not new:
        return RegexChange.RESOLVED
    if new in state.regex_members:
        return RegexChange.RESOLVED if new in state.regexes else RegexChange.UNRESOLVED
    check_regex(new, environment.regexes)
    return RegexChange.UNRESOLVED


def due_regexes(state: GroupState, old: str, new: str, environment: DecisionEnvironment) -> Collection[str]:
    """The expressions to resolve now, if this member's changes from ``old`` to ``new``; empty if it is not time."""
    if environment.is_resolving or _is_fresh(state, MIN_INTERVAL_MS, environment):
        return ()
    wanted = dict(state.regex_members)
    if old != new:
        if old and wanted.get(old) == 1:
            del wanted[old]
        if new:
            wanted[new] = wanted.get(new, 0) + 1
    is_new = bool(new) and new not in state.regex_members
    is_due = (
        is_new
        or len(wanted) != len(state.regexes)
        or _has_new_topics(state, environment)
        or not _is_fresh(state, environment.settings.regex_refresh_interval_ms, environment)
    )
    return tuple(wanted) if is_due else ()


def _is_fresh(state: GroupState, interval_ms: int, environment: DecisionEnvironment) -> bool:
    """Whether the last result is not older than this. One of the future is: the clock was set back."""
    last = next(iter(state.regexes.values()), None)
    return last is not None and last.timestamp_ms <= environment.wall_ms <= last.timestamp_ms + interval_ms


def _has_new_topics(state: GroupState, environment: DecisionEnvironment) -> bool:
    """Whether topics were created since the last result, or perhaps were, because it is from before a restart."""
    return state.seen.regexes_version is None or state.seen.regexes_version < environment.topics.created_version


def only_describable(result: RegexesResolved) -> Steps[Mapping[str, RegexValue]]:
    """The result without topics that the member whose heartbeat asked for it may not describe.

    It is not computed in the background, because the authorizer belongs to the thread of the groups. As in Kafka, the
    other members with the same expression get no other topics.
    """
    describable = result.describable
    if describable is None:
        return result.resolved
    names: set[str] = set()
    for value in result.resolved.values():
        names.update(value.topics)
        yield
    allowed = set((yield from describable(sorted(names))))
    shown: dict[str, RegexValue] = {}
    for regex, value in result.resolved.items():
        shown[regex] = value._replace(topics=tuple(filter(allowed.__contains__, value.topics)))
        yield
    return shown


def apply_result(
    state: GroupState, resolved: Mapping[str, RegexValue], environment: DecisionEnvironment, plan: Plan
) -> Steps[None]:
    """Apply a result. Expressions that no member has any more are left out."""
    version = environment.topics.version
    current: dict[str, RegexValue] = {}
    has_changed = False
    for regex, value in resolved.items():
        if regex in state.regex_members:
            current[regex] = value
            has_changed = has_changed or state.regexes.get(regex, RegexValue()).topics != value.topics
            plan.records.append(RegexRecord(state.group_id, regex, value))
        yield
    plan.regexes_version = max((value.topics_version for value in current.values()), default=None)
    regexes = {**state.regexes, **current}
    epoch = yield from next_group_epoch(state, state.subscriptions, has_changed, environment, plan, regexes)
    if epoch != state.epoch.epoch:
        plan.topics_version = version
