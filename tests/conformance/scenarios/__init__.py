"""All scenarios in chapters, with the settings that each chapter needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..script import Script
from .acls import ACLS, CLUSTER_ACLS
from .consumer_groups import CONSUMER_CONFIGS, CONSUMER_GROUPS, CONSUMER_TOPICS
from .consumer_joining import CONSUMER_JOINING, CONSUMER_SMALL, VALIDATION
from .consumer_offsets import CONSUMER_OFFSETS
from .consumer_rebalances import CONSUMER_EPOCHS, CONSUMER_INTERVALS, CONSUMER_REBALANCES, CONSUMER_SESSIONS
from .consumer_regexes import CONSUMER_REGEXES
from .consumer_static import CONSUMER_STATIC
from .joining import DELAYED, JOINING, SMALL
from .leaving import GROUPS, LEAVING
from .migration import (
    MIGRATION,
    MIGRATION_DELAYED,
    MIGRATION_DISABLED,
    MIGRATION_DOWNGRADE,
    MIGRATION_SMALL,
    MIGRATION_UPGRADE,
)
from .offsets import COMMITS, DELETES, EXPIRIES, FETCHES, NAMELESS
from .static_members import STATIC
from .syncing import SYNCING
from .transactions import TRANSACTIONS

Settings = Mapping[str, int | str | bool]

# Groups form at once, short sessions are allowed, and all groups are in one partition.
PLAIN: Settings = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "offsets.topic.num.partitions": 1,
}

# Groups of the consumer protocol get a new assignment at once.
CONSUMER: Settings = {**PLAIN, "group.consumer.assignment.interval.ms": 0}

# Small groups with short sessions.
CONSUMER_SHORT: Settings = {
    **CONSUMER,
    "group.consumer.max.size": 2,
    "group.consumer.min.session.timeout.ms": 8000,
    "group.consumer.session.timeout.ms": 8000,
}

# Access control lists, which scripts create: without one that matches a resource, everything is allowed.
WITH_ACLS: Settings = {
    **CONSUMER,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


class Chapter(NamedTuple):
    """Scenarios that are played on one server. ``changes_cluster``: so that no two can be played at the same time."""

    settings: Settings
    scenarios: Mapping[str, Script]
    changes_cluster: bool = False


CHAPTERS: Mapping[str, Chapter] = {
    "joining": Chapter(PLAIN, JOINING),
    "small": Chapter({**PLAIN, "group.max.size": 2}, SMALL),
    "delayed": Chapter({**PLAIN, "group.initial.rebalance.delay.ms": 3000}, DELAYED),
    "static": Chapter(PLAIN, STATIC),
    "syncing": Chapter(PLAIN, SYNCING),
    "leaving": Chapter(PLAIN, LEAVING),
    "groups": Chapter(PLAIN, GROUPS),
    "commits": Chapter(PLAIN, COMMITS),
    "fetches": Chapter(PLAIN, FETCHES),
    "nameless": Chapter({**PLAIN, "group.max.size": 1000}, NAMELESS),
    "deletes": Chapter(PLAIN, DELETES),
    "transactions": Chapter(PLAIN, TRANSACTIONS),
    "expiries": Chapter(
        {**PLAIN, "offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}, EXPIRIES
    ),
    "consumer-joining": Chapter(CONSUMER, CONSUMER_JOINING),
    "consumer-validation": Chapter(CONSUMER, VALIDATION),
    "consumer-static": Chapter(CONSUMER, CONSUMER_STATIC),
    "consumer-epochs": Chapter(CONSUMER, CONSUMER_EPOCHS),
    "consumer-rebalances": Chapter(CONSUMER, CONSUMER_REBALANCES),
    "consumer-offsets": Chapter(CONSUMER, CONSUMER_OFFSETS),
    "consumer-groups": Chapter(CONSUMER, CONSUMER_GROUPS),
    "consumer-topics": Chapter(CONSUMER, CONSUMER_TOPICS),
    "consumer-configs": Chapter(CONSUMER, CONSUMER_CONFIGS),
    "consumer-regexes": Chapter(CONSUMER, CONSUMER_REGEXES),
    "consumer-small": Chapter(CONSUMER_SHORT, CONSUMER_SMALL),
    "consumer-sessions": Chapter(CONSUMER_SHORT, CONSUMER_SESSIONS),
    "migration": Chapter(CONSUMER, MIGRATION),
    "migration-delayed": Chapter({**CONSUMER, "group.initial.rebalance.delay.ms": 3000}, MIGRATION_DELAYED),
    "migration-disabled": Chapter({**CONSUMER, "group.consumer.migration.policy": "disabled"}, MIGRATION_DISABLED),
    "migration-upgrade": Chapter({**CONSUMER, "group.consumer.migration.policy": "upgrade"}, MIGRATION_UPGRADE),
    "migration-downgrade": Chapter({**CONSUMER, "group.consumer.migration.policy": "downgrade"}, MIGRATION_DOWNGRADE),
    "migration-small": Chapter(CONSUMER_SHORT, MIGRATION_SMALL),
    "acls": Chapter(WITH_ACLS, ACLS),
    "acls-cluster": Chapter({**WITH_ACLS, "group.max.size": 1000}, CLUSTER_ACLS, changes_cluster=True),
    "consumer-intervals": Chapter({**PLAIN, "group.consumer.assignment.interval.ms": 5000}, CONSUMER_INTERVALS),
}
