"""The APIs that Callboard's own clients use, and the versions of each that they can write.

Requests are written from one set of values for all versions, so the newest version here is the last one that still has
a single group or key per request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..kafka.codec.own_api import ASK_NODE, ASK_NODE_KEY

API_VERSIONS = "api_versions"


class VersionRange(NamedTuple):
    """An API key, and the oldest and newest version that a client writes."""

    api_key: int
    min_version: int
    max_version: int


APIS: Mapping[str, VersionRange] = {
    "list_offsets": VersionRange(2, 1, 7),
    "metadata": VersionRange(3, 4, 12),
    "offset_commit": VersionRange(8, 2, 9),
    "offset_fetch": VersionRange(9, 2, 7),
    "find_coordinator": VersionRange(10, 0, 3),
    "join_group": VersionRange(11, 2, 9),
    "heartbeat": VersionRange(12, 0, 4),
    "leave_group": VersionRange(13, 3, 5),
    "sync_group": VersionRange(14, 0, 5),
    "describe_groups": VersionRange(15, 0, 5),
    "list_groups": VersionRange(16, 0, 5),
    "sasl_handshake": VersionRange(17, 1, 1),
    API_VERSIONS: VersionRange(18, 0, 0),
    "create_topics": VersionRange(19, 2, 7),
    "delete_topics": VersionRange(20, 1, 5),
    "add_partitions_to_txn": VersionRange(24, 4, 5),
    "write_txn_markers": VersionRange(27, 1, 1),
    "describe_acls": VersionRange(29, 1, 3),
    "create_acls": VersionRange(30, 1, 3),
    "delete_acls": VersionRange(31, 1, 3),
    "describe_configs": VersionRange(32, 1, 4),
    "sasl_authenticate": VersionRange(36, 0, 2),
    "create_partitions": VersionRange(37, 0, 3),
    "delete_groups": VersionRange(42, 0, 2),
    "incremental_alter_configs": VersionRange(44, 0, 1),
    "offset_delete": VersionRange(47, 0, 0),
    "describe_user_scram_credentials": VersionRange(50, 0, 0),
    "alter_user_scram_credentials": VersionRange(51, 0, 0),
    "consumer_group_heartbeat": VersionRange(68, 1, 1),
    "consumer_group_describe": VersionRange(69, 0, 1),
    ASK_NODE: VersionRange(ASK_NODE_KEY, 0, 0),
}
"""By kio's name of the API."""


def common_versions(response: Any) -> dict[str, int]:
    """The newest version of each API that client and server know, from the response to ApiVersions.

    An API without a common version is left out.
    """
    served = {api.api_key: api for api in response.api_keys}
    versions = {}
    for name, ours in APIS.items():
        theirs = served.get(ours.api_key)
        if theirs is None:
            continue
        version = min(ours.max_version, theirs.max_version)
        if version >= max(ours.min_version, theirs.min_version):
            versions[name] = version
    return versions
