"""TopicsLog: the versions of the topics."""

from __future__ import annotations

from ...actors.steps import run_steps
from .keys import TOPICS, number_of, version_key
from .session_environment import SessionEnvironment
from .store import Store, settle
from .topics_document import TopicsDocument, decode_topics
from .version_log import Change, VersionLog

VERSIONS_KEPT = 50


class Overtaken(Exception):
    """The version that was created may have been deleted before: nobody follows it, and the change is made again."""


class TopicsLog(VersionLog[TopicsDocument]):
    """Any node may change the topics, whether it has a session or not."""

    def __init__(self, store: Store, environment: SessionEnvironment) -> None:
        super().__init__(store, environment, TOPICS, decode_topics, VERSIONS_KEPT)

    async def _first(self) -> TopicsDocument:
        """A new cluster has no topics: the first node that looks creates version 0."""
        document = TopicsDocument(0, self._environment.token().hex(), {})
        data = await settle(self._store, version_key(TOPICS, 0), run_steps(document.encode()))
        return run_steps(decode_topics(data))

    async def make(self, change: Change[TopicsDocument]) -> None:
        """Make a change, or find that nothing has to change, by the newest version."""
        while True:
            try:
                await self.change(change, self._confirm)
                return
            except Overtaken:
                self.current = None

    async def _confirm(self) -> None:
        """A version is deleted only when there are many newer ones."""
        assert self.current is not None
        created = self.current.version + 1
        newest = number_of((await self._store.list(TOPICS))[-1])
        if newest > created + self.kept:
            raise Overtaken
