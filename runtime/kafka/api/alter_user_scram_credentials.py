"""AlterUserScramCredentials (51): create, change and delete the credentials of users (KIP-554).

Clients send the salted password, from which the stored keys are made. The rules are those of Kafka's
ScramControlManager: valid changes of a request are made although others of it are refused. Answered when they are
durable. Without an authorizer ``--dynamic-settings`` limits the clients that may change users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, distinct, pieces
from ...common.logs import get_logger
from ...common.shared_bytes import SharedBytes
from ...security import audit
from ...security.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MIN,
    SALTED_BYTES_MAX,
    SCRAM_BY_NUMBER,
    Credential,
    credential_of,
)
from ...security.document import USERS, Section
from ...security.resources import ResourceType
from ..audit.audited import Sections, record_in_steps, resource_text
from ..authorization.authorize import allows_everything, authorize
from ..authorization.checks import ALTER_SECURITY
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from ..refusals import as_refusal
from .incremental_alter_configs import NotAllowedHere, author, check_may_change

SHOWN_MAX = 20
"""Users that a log line names."""

log = get_logger("callboard.runtime")


class Refusal(NamedTuple):
    """Why the change of a user is not made."""

    code: ErrorCode
    message: str


TWICE = Refusal(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
WITHOUT_NAME = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
UNKNOWN_MECHANISM = Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
TOO_FEW = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
TOO_MANY = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
SHORT_SALT = Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt must have at least {SALT_BYTES_MIN} bytes")
TOO_LONG = Refusal(
    ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt and the salted password may have at most {SALTED_BYTES_MAX} bytes"
)
NOT_FOUND = Refusal(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


class Change(NamedTuple):
    """One entry of a request. ``credential``: None for a deletion."""

    user: str
    mechanism: int
    credential: Credential | None
    refusal: Refusal | None


Outcomes = dict[str, Refusal | None]
"""By user; None if it is changed."""


def handle(call: Call) -> Steps[None]:
    changes = yield from _changes(call.request)
    outcomes: Outcomes = dict.fromkeys((yield from distinct(change.user for change in changes)))
    denial = _denial(call)
    if denial is not None or not changes:
        call.encode_and_respond(lambda: _encode(call, dict.fromkeys(outcomes, denial), Sections()))
        return

    sections = Sections()

    def change(users: Section) -> Steps[Section]:
        sections.before, sections.after = users, (yield from _changed(users, changes, outcomes))
        return sections.after

    def done(failure: Exception | None) -> None:
        result: Outcomes = outcomes if failure is None else dict.fromkeys(outcomes, _as_refusal(failure))
        call.encode_and_respond(lambda: _encode(call, result, sections))

    call.services.security.change(USERS, change, done)


def _denial(call: Call) -> Refusal | None:
    try:
        if allows_everything(call):
            check_may_change(call)
    except NotAllowedHere as refusal:
        return Refusal(refusal.code, str(refusal))
    denial = ALTER_SECURITY.denial
    return Refusal(denial.code, denial.message) if authorize(call, ALTER_SECURITY).error else None


def _changes(request: Any) -> Steps[list[Change]]:
    """The entries of a request in Kafka's order, with the credentials that they make, and what is invalid in them."""
    changes = []
    for piece in pieces(request.deletions):
        changes += [Change(each.name, each.mechanism, None, _invalid(each)) for each in piece]
        yield
    for each in request.upsertions:
        refusal = _invalid(each) or _invalid_credential(each)
        credential = None if refusal else _credential(each)
        changes.append(Change(each.name, each.mechanism, credential, refusal))
        yield
    return changes


def _invalid(entry: Any) -> Refusal | None:
    if not entry.name:
        return WITHOUT_NAME
    return None if entry.mechanism in SCRAM_BY_NUMBER else UNKNOWN_MECHANISM


def _invalid_credential(upsertion: Any) -> Refusal | None:
    """Kafka accepts a short salt, too, and long ones."""
    if upsertion.iterations < ITERATIONS_MIN:
        return TOO_FEW
    if upsertion.iterations > ITERATIONS_MAX:
        return TOO_MANY
    if max(len(upsertion.salt), len(upsertion.salted_password)) > SALTED_BYTES_MAX:
        return TOO_LONG
    return SHORT_SALT if len(upsertion.salt) < SALT_BYTES_MIN else None


def _credential(upsertion: Any) -> Credential:
    mechanism = SCRAM_BY_NUMBER[upsertion.mechanism]
    return credential_of(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)


def _changed(users: Section, changes: Sequence[Change], outcomes: Outcomes) -> Steps[Section]:
    """The users after the valid changes. It may be called again, and decides anew then."""
    valid: dict[str, Change] = {}
    outcomes.update(dict.fromkeys(outcomes))
    for piece in pieces(changes):
        for change in piece:
            _decide(users, change, valid, outcomes)
        yield
    return (yield from _with_changes(users, valid.values())) if valid else users


def _decide(users: Section, change: Change, valid: dict[str, Change], outcomes: Outcomes) -> None:
    """Add a change to the valid ones, unless it, or an earlier one of the same user, is refused."""
    if outcomes[change.user] is not None:
        return
    refusal = TWICE if change.user in valid else change.refusal or _missing(users, change)
    if refusal is None:
        valid[change.user] = change
    else:
        outcomes[change.user] = refusal
        valid.pop(change.user, None)


def _missing(users: Section, change: Change) -> Refusal | None:
    """NOT_FOUND for a deletion of what is not there."""
    is_there = change.credential is not None or _name(change) in users.get(change.user, {})
    return None if is_there else NOT_FOUND


def _with_changes(users: Section, changes: Iterable[Change]) -> Steps[Section]:
    changed = dict(users)
    for piece in pieces(changes):
        for change in piece:
            own = {name: fields for name, fields in changed.get(change.user, {}).items() if name != _name(change)}
            if change.credential is not None:
                own[_name(change)] = change.credential.fields()
            if own:
                changed[change.user] = own
            else:
                del changed[change.user]
        yield
    return changed


def _name(change: Change) -> str:
    return SCRAM_BY_NUMBER[change.mechanism].name


def _as_refusal(failure: Exception) -> Refusal:
    refusal = as_refusal(failure, "users")
    return Refusal(refusal.code, str(refusal))


def _log_changes(call: Call, outcomes: Outcomes, sections: Sections) -> Steps[None]:
    """With the mechanisms: a request changes one of a user, so a new user with two of them is two lines."""
    shown: list[str] = []
    count = 0
    for piece in pieces(outcomes.items()):
        changed = [user for user, refusal in piece if refusal is None]
        shown += [_with_mechanisms(user, sections) for user in changed[: SHOWN_MAX - len(shown)]]
        count += len(changed)
        yield
    if count:
        principal = str(call.principal)
        log.warning("users were changed", users=shown, count=count, principal=principal, changed_by=author(call))


def _with_mechanisms(user: str, sections: Sections) -> str:
    """The name of a user, with the mechanisms whose credentials were set or deleted."""
    before, after = (users.get(user, {}) for users in (sections.before, sections.after))
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"{user} ({', '.join(changed)})" if changed else user


def _encode(call: Call, outcomes: Outcomes, sections: Sections) -> Steps[bytes | SharedBytes]:
    yield from _log_changes(call, outcomes, sections)
    yield from record_in_steps(call, _audited(outcomes, sections))
    response = call.make(
        "AlterUserScramCredentialsResponse", throttle_time=NO_THROTTLE, results=_results(call, outcomes)
    )
    return (yield from write_in_steps(response))


def _audited(outcomes: Outcomes, sections: Sections) -> Iterator[audit.Change | None]:
    """What has changed, without secrets."""
    for user, refusal in outcomes.items():
        resource = resource_text(ResourceType.USER, user)
        before, after = (_iterations(users, user) for users in (sections.before, sections.after))
        yield None if refusal else audit.Change("alter" if after else "delete", resource, before, after)


def _iterations(users: Section, user: str) -> dict[str, int] | None:
    """By mechanism; None if there is no such user."""
    return {name: fields["iterations"] for name, fields in users[user].items()} if user in users else None


def _results(call: Call, outcomes: Outcomes) -> Iterator[Any]:
    """The results, for ``step_writer``. As in Kafka, refused users follow the others."""
    for is_refused in (False, True):
        for piece in pieces(outcomes.items()):
            for user, refusal in piece:
                if (refusal is not None) == is_refused:
                    yield _result(call, user, refusal)
            yield None


def _result(call: Call, user: str, refusal: Refusal | None) -> Any:
    code, message = (ErrorCode.NONE, None) if refusal is None else refusal
    return call.make("AlterUserScramCredentialsResult", user=user, error_code=kafka_error(code), error_message=message)
