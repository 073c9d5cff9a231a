"""Client quotas: which there may be, how they are stored, and which one applies to a client. Pure.

Source: ``ClientQuotaControlManager``, ``ClientQuotasImage`` and ``ClientQuotaManager`` of Kafka 4.3.1, with its texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps, pieces
from ..common.ip_addresses import parse_ip

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

REQUEST_PERCENTAGE = "request_percentage"
MUTATION_RATE = "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"

_LONG_MAX = 2.0**63
_INT_MAX = 2.0**31 - 1

ENTITIES_MAX: Final = 1000
"""Entities that have quotas. Kafka has no limit; here each change writes all of them."""

OPERATIONS_MAX: Final = 100
"""Quotas of one entity in a request. Kafka has five names of quotas, and no limit."""

NAME_CHARS_MAX: Final = 1000


class QuotaKey(NamedTuple):
    """``maximum``: of a whole number; None for a number that may have a fraction. ``type_name``: "a LONG"."""

    name: str
    maximum: float | None
    type_name: str = ""


_CLIENT_KEYS = (
    QuotaKey("producer_byte_rate", _LONG_MAX, "a LONG"),
    QuotaKey("consumer_byte_rate", _LONG_MAX, "a LONG"),
    QuotaKey(REQUEST_PERCENTAGE, None),
    QuotaKey(MUTATION_RATE, None),
)
CLIENT_KEYS: Final = {key.name: key for key in _CLIENT_KEYS}
IP_KEYS: Final = {CONNECTION_RATE: QuotaKey(CONNECTION_RATE, _INT_MAX, "an INT")}

Entity = Mapping[str, str | None]
"""Names by the type of entity; None is the default of the type."""

Values = Mapping[str, float]
"""Limits by the name of the quota."""

Operation = tuple[str, float | None]
"""The name of a quota and its new limit; None removes it."""

EXACT, DEFAULT, ANY = 0, 1, 2


class Component(NamedTuple):
    """One condition of a filter. ``match_type``: this name, the default of the type, or any of them."""

    entity_type: str
    match_type: int
    match: str | None


class Limit(NamedTuple):
    """``value``: the limit. ``shared_by``: the user and the client id, or one of them, that it is counted for."""

    value: float
    shared_by: tuple[str | None, str | None]


# Changes -------------------------------------------------------------------------------------------------------------


def entity_text(entity: Entity) -> str:
    """An entity as text, whatever the order of its types."""
    return json.dumps(dict(sorted(entity.items())), ensure_ascii=False)


def check_change(entity: Entity, operations: Sequence[Operation]) -> None:
    """Raise CoordinatorError for an entity or a quota that there cannot be."""
    check_entity(entity)
    keys = IP_KEYS if IP in entity else CLIENT_KEYS
    names = [name for name, _ in operations]
    if len(set(names)) < len(names):
        raise _invalid("a quota occurs twice in the request")
    for name, value in operations:
        check_value(keys, name, value)


def check_entity(entity: Entity) -> None:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for entity_type, name in entity.items():
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported")
        if name is not None and len(name) > NAME_CHARS_MAX:
            raise _invalid(f"the {entity_type} has {len(name)} characters: expected at most {NAME_CHARS_MAX}")
    if IP in entity:
        _check_ip(entity)


def _check_ip(entity: Entity) -> None:
    if len(entity) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    name = entity[IP]
    if name is not None and plain_ip(name) is None:
        raise _invalid(f"{name} is not a valid IP or resolvable host.")


def plain_ip(text: str) -> str | None:
    """The one form in which addresses are compared; None for what is no address."""
    try:
        return str(parse_ip(text))
    except ValueError:
        return None


def check_value(keys: Mapping[str, QuotaKey], name: str, value: float | None) -> None:
    if value is None:
        return  # as in Kafka, what is not there may be removed
    key = keys.get(name)
    if key is None:
        raise _invalid(f"Invalid configuration key {name}")
    if not value > 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    if key.maximum is not None and value > key.maximum:
        raise _invalid(f"Proposed value for {name} is too large for {key.type_name}.")
    if key.maximum is not None and abs(value % 1.0) > 1e-6:
        raise _invalid(f"{name} cannot be a fractional value.")
    if value == float("inf"):
        raise _invalid(f"Proposed value for {name} is too large.")


def changed(section: Mapping[str, Any], changes: Iterable[tuple[Entity, Sequence[Operation]]]) -> Steps[dict[str, Any]]:
    """The stored quotas after changes that ``check_change`` accepts. Raises CoordinatorError for too many entities."""
    quotas: dict[str, Any] = dict(section)
    for piece in pieces(changes):
        for entity, operations in piece:
            _change(quotas, entity, operations)
        yield
    if len(quotas) > max(ENTITIES_MAX, len(section)):
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION,
            f"{ENTITIES_MAX} entities have quotas, which is the limit: remove those of another one first",
        )
    return quotas


def _change(quotas: dict[str, Any], entity: Entity, operations: Sequence[Operation]) -> None:
    text = stored_text(entity)
    wanted = {**quotas.get(text, {}), **dict(operations)}
    values = {name: value for name, value in wanted.items() if value is not None}
    if values:
        quotas[text] = values
    else:
        quotas.pop(text, None)


def stored_text(entity: Entity) -> str:
    """The key of a valid entity: that of an address does not depend on how it is written."""
    name = entity.get(IP)
    return entity_text(entity if name is None else {IP: plain_ip(name)})


def entities(section: Mapping[str, Any]) -> Iterator[tuple[Entity, Values]]:
    """The stored quotas."""
    for text, values in section.items():
        yield json.loads(text), values


# Filters -------------------------------------------------------------------------------------------------------------


def check_filter(components: Sequence[Component]) -> None:
    """Raise CoordinatorError for a filter that there cannot be."""
    seen: set[str] = set()
    for component in components:
        if not component.entity_type:
            raise _invalid("Invalid empty entity type.")
        if component.entity_type in seen:
            raise _invalid(f"Entity type {component.entity_type} cannot appear more than once in the filter.")
        if component.entity_type not in ENTITY_TYPES:
            raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}")
        seen.add(component.entity_type)
        _check_match(component)
    if IP in seen and len(seen) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )


def _check_match(component: Component) -> None:
    name = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}.get(
        component.match_type
    )
    if name is None:
        raise _invalid(f"Unknown match type {component.match_type}")
    if component.match_type == EXACT and component.match is None:
        raise _invalid(f"Request specified {name}, but set match string to null.")
    if component.match_type != EXACT and component.match is not None:
        raise _invalid(f"Request specified {name}, but also specified a match string.")


def matches(entity: Entity, components: Sequence[Component], *, is_strict: bool) -> bool:
    """Whether an entity fulfils all conditions. ``is_strict``: it has no other types than those of the conditions."""
    if is_strict and len(entity) != len(components):
        return False
    return all(_fulfils(entity, component) for component in components)


def _fulfils(entity: Entity, component: Component) -> bool:
    if component.entity_type not in entity:
        return False
    wanted = component.match
    if component.entity_type == IP and wanted is not None:
        wanted = plain_ip(wanted) or wanted
    return component.match_type == ANY or entity[component.entity_type] == wanted


# Look-up -------------------------------------------------------------------------------------------------------------


Names = tuple[tuple[str, str | None], ...]
_NONE: Names = ()


class QuotaTable:
    """The quotas of one kind for look-ups. Made anew for each change."""

    def __init__(self) -> None:
        self._limits: dict[Names, float] = {}

    def add(self, entity: Entity, limit: float) -> None:
        self._limits[tuple(sorted(entity.items()))] = limit

    def __bool__(self) -> bool:
        return bool(self._limits)

    def of_client(self, user: str, client_id: str) -> Limit | None:
        """The limit for a client, in Kafka's order: the most specific one; None for none."""
        for user_name, client_name, shared_by in _candidates(user, client_id):
            limit = self._limits.get((*client_name, *user_name))
            if limit is not None:
                return Limit(limit, shared_by)
        return None

    def of_ip(self, address: str) -> Limit | None:
        """The limit for an address."""
        for name in (address, None):
            limit = self._limits.get(((IP, name),))
            if limit is not None:
                return Limit(limit, (address, None))
        return None


def tables_of(section: Mapping[str, Any], keys: Sequence[str]) -> Steps[list[QuotaTable]]:
    """A table for each kind of quota."""
    tables = [QuotaTable() for _ in keys]
    for piece in pieces(entities(section)):
        for entity, values in piece:
            for key, table in zip(keys, tables, strict=True):
                if key in values:
                    table.add(entity, values[key])
        yield
    return tables


def _candidates(user: str, client_id: str) -> Iterator[tuple[Names, Names, tuple[str | None, str | None]]]:
    """The names of entities that a client belongs to, and who shares the limit of each."""
    for user_name in (user, None):
        for client_name in (client_id, None):
            yield ((USER, user_name),), ((CLIENT_ID, client_name),), (user, client_id)
        yield ((USER, user_name),), _NONE, (user, None)
    for client_name in (client_id, None):
        yield _NONE, ((CLIENT_ID, client_name),), (None, client_id)


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)
