"""Changes of topics, for the audit trail."""

from __future__ import annotations

from typing import Any

from ...security.audit import Change, alteration
from ...topics.topic import Topic


def creation(outcome: object) -> Change | None:
    """The change that has created a topic; None for a refusal."""
    return Change("create", f"Topic:{outcome.name}", None, values(outcome)) if isinstance(outcome, Topic) else None


class Growth:
    """A change of the number of partitions, which is called with the number before it."""

    def __init__(self, topic: Topic, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._before = len(topic.partitions)

    def __call__(self, before: int) -> None:
        self._before = before

    def alteration(self) -> Change | None:
        resource = f"Topic:{self._topic.name}"
        return alteration(resource, {"partitions": self._before}, {"partitions": self._partitions})


def deletion(topic: Topic) -> Change:
    return Change("delete", f"Topic:{topic.name}", values(topic))


def values(topic: Topic) -> dict[str, Any]:
    return {"partitions": len(topic.partitions), "settings": dict(topic.policy.overrides)}
