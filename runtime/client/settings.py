"""Settings of a running server, for commands: the configs of its broker resource."""

from __future__ import annotations

from collections.abc import Mapping

from .cluster import Cluster
from .errors import raise_if_error

BROKER = 4  # the type of the resource
SET, DELETE = 0, 1


def change_settings(cluster: Cluster, changes: Mapping[str, str | None]) -> None:
    """Change dynamic settings, all or none (KIP-339). ``changes``: by Kafka's names; None restores the start value.

    Sent to each broker, since a broker changes only its own. Raises what ``Cluster`` raises.
    """
    configs = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in changes.items()
    ]
    for broker in cluster.metadata([]).brokers:
        resource = {"resource_type": BROKER, "resource_name": str(broker.node_id), "configs": configs}
        [result] = cluster.ask("incremental_alter_configs", resources=[resource], validate_only=False).responses
        raise_if_error("the settings were not changed", result.error_code, result.error_message)
