"""What a Callboard server knows for the explanation of a group, by the request that Kafka does not have."""

from __future__ import annotations

from ...actors.messages import ExplainGroup
from ...actors.recorder.recorded import GroupRecorded
from .cluster import Cluster
from .own_questions import NotAnswered, ask_about_group


def read_recorded(cluster: Cluster, group: str) -> GroupRecorded:
    """Ask the coordinator of a group. Raises ClientError, also if that is Kafka or an older Callboard."""
    try:
        recorded: GroupRecorded = ask_about_group(cluster, ExplainGroup(group), GroupRecorded)
    except NotAnswered as error:
        text = f"{error.server} is not a Callboard server of this version: it does not say why a group rebalanced"
        raise NotAnswered(error.server, f"{text}; --data reads the folder of a server") from None
    return recorded
