"""SharedGroupConfigAdmin: settings of groups in a cluster. A change is answered when it is durable in the store."""

from __future__ import annotations

from collections.abc import Callable

from ..settings.admin import GroupConfigAdmin
from ..settings.dynamic import DynamicSettings
from ..settings.group_configs import ChangeTexts
from .topic_changes import TopicChanges
from .topics_draft import SharedTopicsDraft


class SharedGroupConfigAdmin(GroupConfigAdmin):
    """The settings are in the document of the topics."""

    def __init__(self, configs: DynamicSettings, changes: TopicChanges) -> None:
        super().__init__(configs)
        self._groups = configs.groups
        self._changes = changes

    def alter(self, group_id: str, change: ChangeTexts, done: Callable[[Exception | None], None]) -> None:
        def apply(draft: SharedTopicsDraft) -> None:
            self._groups.alter(draft.groups, group_id, change)

        self._changes.submit(apply, done)
