"""DescribeClientQuotas (48): the stored quotas of the entities that a filter matches (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...security.document import QUOTAS
from ...security.quotas import Component, Entity, Values, check_filter, entities, matches
from ..authorization.authorize import authorize
from ..authorization.checks import DESCRIBE_BROKER_CONFIGS
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error


def handle(call: Call) -> Steps[None]:
    denial = authorize(call, DESCRIBE_BROKER_CONFIGS).error
    if denial:
        refuse(call, CoordinatorError(denial, ""))  # as Kafka, without a text
        return
    components: list[Component] = []
    for piece in pieces(call.request.components):
        components += (Component(each.entity_type, each.match_type, each.match) for each in piece)
        yield
    try:
        check_filter(components)
    except CoordinatorError as refusal:
        refuse(call, refusal)
        return
    fields = {"error_code": kafka_error(ErrorCode.NONE), "error_message": "", "entries": entries(call, components)}
    response = call.make("DescribeClientQuotasResponse", throttle_time=NO_THROTTLE, **fields)
    yield from call.respond_in_steps(response)


def refuse(call: Call, refusal: CoordinatorError) -> None:
    fields = {"error_code": kafka_error(refusal.code), "error_message": str(refusal) or None, "entries": None}
    call.respond(call.make("DescribeClientQuotasResponse", throttle_time=NO_THROTTLE, **fields))


def entries(call: Call, components: Sequence[Component]) -> Iterator[Any]:
    """Yield the entries; None after each piece of work."""
    is_strict = call.request.strict
    for piece in pieces(entities(call.services.security.get(QUOTAS))):
        for entity, values in piece:
            if matches(entity, components, is_strict=is_strict):
                yield entry(call, entity, values)
        yield None


def entry(call: Call, entity: Entity, values: Values) -> Any:
    return call.make(
        "EntryData",
        entity=tuple(call.make("EntityData", entity_type=kind, entity_name=name) for kind, name in entity.items()),
        values=tuple(call.make("ValueData", key=key, value=value) for key, value in values.items()),
    )
