"""AlterClientQuotas (49): set and remove quotas (KIP-546). Answered when they are durable.

Each entity of a request is accepted or refused by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, counted, pieces
from ...common.shared_bytes import SharedBytes
from ...security.audit import Change
from ...security.document import QUOTAS, Section
from ...security.quotas import (
    ENTITIES_MAX,
    ENTITY_TYPES,
    OPERATIONS_MAX,
    Entity,
    Operation,
    changed,
    check_change,
    entity_text,
    stored_text,
)
from ..audit.audited import Sections, record_in_steps
from ..authorization.authorize import authorize
from ..authorization.checks import ALTER_BROKER_CONFIGS
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from ..refusals import as_refusal

Refusals = dict[int, CoordinatorError]
"""The refused entries, by their number."""

Changes = dict[int, tuple[Entity, Sequence[Operation]]]
"""The accepted entries, by their number."""


def handle(call: Call) -> Steps[None]:
    denied = bool(authorize(call, ALTER_BROKER_CONFIGS).error)
    occurrences = yield from counted(entity_text(named(entry)) for entry in call.request.entries)
    refusals, changes, number = Refusals(), Changes(), 0
    for piece in pieces(call.request.entries):
        for entry in piece:
            try:
                if denied:
                    raise CoordinatorError(*ALTER_BROKER_CONFIGS.denial)
                changes[number] = check(entry, occurrences, len(changes))
            except CoordinatorError as refusal:
                refusals[number] = refusal.with_traceback(None)  # its frames refer to the refusals: a cycle
            number += 1
        yield
    if call.request.validate_only or not changes:
        call.encode_and_respond(lambda: encode(call, refusals, {}, Sections()))
        return
    sections = Sections()

    def change(section: Section) -> Steps[Section]:
        sections.before, sections.after = section, (yield from changed(section, changes.values()))
        return sections.after

    call.services.security.change(QUOTAS, change, partial(finish, call, refusals, changes, sections))


def named(entry: Any) -> Entity:
    """Return the entity of an entry; an empty one if it has too many components, of which ``check`` reads no more."""
    components = entry.entity if len(entry.entity) <= len(ENTITY_TYPES) else ()
    return {each.entity_type: each.entity_name for each in components}


def check(entry: Any, occurrences: Mapping[str, int], accepted: int) -> tuple[Entity, Sequence[Operation]]:
    """Return what is to be changed. Raises CoordinatorError. ``accepted``: entries of the request before this one."""
    entity = named(entry)
    if len(entry.entity) > len(ENTITY_TYPES):
        text = f"the entity has {len(entry.entity)} components: expected one of each type ({', '.join(ENTITY_TYPES)})"
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, text)
    if len(entity) < len(entry.entity):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "an entity type occurs twice in the entity")
    if occurrences[entity_text(entity)] > 1:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "the entity occurs twice in the request")
    if len(entry.ops) > OPERATIONS_MAX:
        text = f"the entity has {len(entry.ops)} operations: expected at most {OPERATIONS_MAX}"
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, text)
    if accepted >= ENTITIES_MAX:
        raise CoordinatorError(ErrorCode.POLICY_VIOLATION, f"expected at most {ENTITIES_MAX} entities in a request")
    operations = [(operation.key, None if operation.remove else operation.value) for operation in entry.ops]
    check_change(entity, operations)
    return entity, operations


def finish(call: Call, refusals: Refusals, changes: Changes, sections: Sections, failure: Exception | None) -> None:
    """Answer when the changes are durable, or could not be made."""
    if failure is not None:
        refusals.update(dict.fromkeys(changes, as_refusal(failure, "quotas")))
    call.encode_and_respond(lambda: encode(call, refusals, {} if failure else changes, sections))


def encode(call: Call, refusals: Refusals, changes: Changes, sections: Sections) -> Steps[bytes | SharedBytes]:
    """``changes``: those that were made."""
    yield from record_in_steps(call, differences(changes, sections))
    response = call.make("AlterClientQuotasResponse", throttle_time=NO_THROTTLE, entries=results(call, refusals))
    return (yield from write_in_steps(response))


def differences(changes: Changes, sections: Sections) -> Iterator[Change | None]:
    """Yield the changes for the audit trail."""
    for entity, _ in changes.values():
        text = stored_text(entity)
        old, new = sections.before.get(text), sections.after.get(text)
        yield None if old == new else Change("alter", f"ClientQuota:{text}", old, new)


def results(call: Call, refusals: Refusals) -> Iterator[Any]:
    """Yield the results of all entries; None after each piece of work."""
    number = 0
    for piece in pieces(call.request.entries):
        for entry in piece:
            yield result(call, entry, refusals.get(number))
            number += 1
        yield None


def result(call: Call, entry: Any, refusal: CoordinatorError | None) -> Any:
    return call.make(
        "EntryData",
        error_code=kafka_error(refusal.code if refusal else ErrorCode.NONE),
        error_message=str(refusal) if refusal else None,
        entity=components(call, entry),
    )


def components(call: Call, entry: Any) -> Iterator[Any]:
    """Yield those of the entity, as the client has sent them; None after each piece of work."""
    for piece in pieces(entry.entity):
        for each in piece:
            yield call.make("EntityData", entity_type=each.entity_type, entity_name=each.entity_name)
        yield None
