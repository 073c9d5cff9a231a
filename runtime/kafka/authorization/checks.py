"""Checks of authorization that the rows of ``api.APIS`` name: an operation on a type of resource.

The checks of each API, and what a denied client is told, are those of Kafka 4.3.1 (KafkaApis, ControllerApis).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ....actors.errors import ErrorCode
from ...security.resources import Operation, ResourceType


class Denied(Enum):
    """What a client is told about a resource that is denied to it."""

    ERROR = "error"
    LEFT_OUT = "left out"


class Denial(NamedTuple):
    """The error of a denied resource, with Kafka's text."""

    code: ErrorCode
    message: str


DENIALS: Final = {
    ResourceType.TOPIC: Denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: Denial(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: Denial(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: Denial(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    ),
}


class Check(NamedTuple):
    """One check of an API, for the whole request or for each item of it.

    ``unless``: another operation that allows all items too, on the cluster, or else on any resource of that type.
    ``logs_denials``: whether the authorizer should log that an item was denied.
    """

    operation: Operation
    resource_type: ResourceType
    denied: Denied = Denied.ERROR
    logs_denials: bool = True
    unless: tuple[Operation, ResourceType] | None = None

    @property
    def denial(self) -> Denial:
        return DENIALS[self.resource_type]


READ_GROUP: Final = Check(Operation.READ, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Check(Operation.DESCRIBE, ResourceType.GROUP)
DELETE_GROUP: Final = Check(Operation.DELETE, ResourceType.GROUP)
LISTED_GROUP: Final = Check(
    Operation.DESCRIBE, ResourceType.GROUP, Denied.LEFT_OUT, False, (Operation.DESCRIBE, ResourceType.CLUSTER)
)
DESCRIBE_GROUP_CONFIGS: Final = Check(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS: Final = Check(Operation.ALTER_CONFIGS, ResourceType.GROUP)

READ_TOPIC: Final = Check(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Check(Operation.WRITE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Check(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Check(Operation.DESCRIBE, ResourceType.TOPIC)
LISTED_TOPIC: Final = Check(Operation.DESCRIBE, ResourceType.TOPIC, Denied.LEFT_OUT, False)
FILTERED_TOPIC: Final = Check(Operation.DESCRIBE, ResourceType.TOPIC, Denied.LEFT_OUT)
CREATE_TOPIC: Final = Check(Operation.CREATE, ResourceType.TOPIC, unless=(Operation.CREATE, ResourceType.CLUSTER))
DESCRIBE_TO_DELETE: Final = Check(
    Operation.DESCRIBE, ResourceType.TOPIC, unless=(Operation.DELETE, ResourceType.CLUSTER)
)
DELETE_TOPIC: Final = Check(Operation.DELETE, ResourceType.TOPIC, unless=(Operation.DELETE, ResourceType.CLUSTER))
DELETE_RECORDS: Final = Check(Operation.DELETE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Check(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
DESCRIBE_NEW_TOPIC_CONFIGS: Final = Check(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, logs_denials=False)
ALTER_TOPIC_CONFIGS: Final = Check(Operation.ALTER_CONFIGS, ResourceType.TOPIC)

ACT_AS_BROKER: Final = Check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Check(Operation.DESCRIBE, ResourceType.CLUSTER, Denied.LEFT_OUT)
DESCRIBE_SECURITY: Final = Check(Operation.DESCRIBE, ResourceType.CLUSTER)
ALTER_SECURITY: Final = Check(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_BROKER_CONFIGS: Final = Check(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_BROKER_CONFIGS: Final = Check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
WRITE_IDEMPOTENTLY: Final = Check(
    Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, unless=(Operation.WRITE, ResourceType.TOPIC)
)

WRITE_TRANSACTIONAL_ID: Final = Check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = Check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
LISTED_TRANSACTIONAL_ID: Final = Check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, Denied.LEFT_OUT)
