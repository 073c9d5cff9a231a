"""The consumer protocol and the assignors of other Python clients, for comparison in tests."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python uses a deprecated way of reading its schemas
    from aiokafka.coordinator.assignors.range import (  # type: ignore[import-untyped, unused-ignore]
        RangePartitionAssignor as AiokafkaRange,
    )
    from aiokafka.coordinator.assignors.roundrobin import (  # type: ignore[import-untyped, unused-ignore]
        RoundRobinPartitionAssignor as AiokafkaRoundRobin,
    )
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import (  # type: ignore[import-untyped, unused-ignore]
        StickyAssignorUserDataV1 as AiokafkaUserData,
    )
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AiokafkaSticky
    from aiokafka.coordinator.protocol import (  # type: ignore[import-untyped, unused-ignore]
        ConsumerProtocolMemberAssignment as AiokafkaAssignment,
    )
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as AiokafkaSubscription
    from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[import-untyped, unused-ignore]
        CooperativeStickyAssignor as KafkaPythonCooperative,
    )
    from kafka.coordinator.assignors.range import (  # type: ignore[import-untyped, unused-ignore]
        RangePartitionAssignor as KafkaPythonRange,
    )
    from kafka.coordinator.assignors.roundrobin import (  # type: ignore[import-untyped, unused-ignore]
        RoundRobinPartitionAssignor as KafkaPythonRoundRobin,
    )
    from kafka.coordinator.assignors.sticky.user_data import (  # type: ignore[import-untyped, unused-ignore]
        StickyAssignorUserData as KafkaPythonUserData,
    )
    from kafka.protocol.consumer.metadata import (  # type: ignore[import-untyped, unused-ignore]
        ConsumerProtocolAssignment as KafkaPythonAssignment,
    )
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as KafkaPythonSubscription

__all__ = [
    "AiokafkaAssignment",
    "AiokafkaRange",
    "AiokafkaRoundRobin",
    "AiokafkaSticky",
    "AiokafkaSubscription",
    "AiokafkaUserData",
    "KafkaPythonAssignment",
    "KafkaPythonCooperative",
    "KafkaPythonRange",
    "KafkaPythonRoundRobin",
    "KafkaPythonSubscription",
    "KafkaPythonUserData",
]
