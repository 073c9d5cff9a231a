"""SharedTopics: the topics of a cluster in one node. Their names and settings are shared, each is led by one node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.ports import Random
from ...actors.steps import Steps
from ..common.logs import get_logger
from ..disk.group_commit import outcome_of
from ..security.document import SecurityDocument
from ..security.store import DocumentChange, SecurityStore
from ..settings.dynamic import DynamicSettings
from ..topics.admin import SharedTopicLimits
from ..topics.adoption import Adoption
from ..topics.catalogue import TopicCatalogue
from ..topics.ids import shared_offsets_topic_id
from ..topics.store import NewTopic
from ..topics.topic import Topic
from .cluster_node import ClusterNode
from .documents import Unreadable
from .keys import TOPICS, number_of, version_key
from .offset_cleanups import DeleteOffsets, OffsetCleanups
from .patient_store import PatientStore
from .session_environment import SessionEnvironment
from .shared_group_configs import SharedGroupConfigAdmin
from .shared_topic_admin import SharedTopicAdmin
from .store import StoreRefused
from .topic_changes import TopicChanges
from .topic_leadership import TopicLeadership, led_with
from .topics_document import TopicsDocument
from .topics_draft import SharedTopicsDraft
from .topics_follower import TopicsFollower
from .topics_log import TopicsLog

CREATED_BY_ANOTHER_NODE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS)
"""Refusals of a topic that may exist now."""
REFUSED_PAUSE_S = 1.0

log = get_logger("callboard.cluster")


class SharedTopics:
    """``OwnershipListener`` of the node, ``Followed`` of its sessions, and ``CatalogueFollower``.

    ``admin`` changes the topics, ``group_admin`` the settings of groups. ``delete_offsets`` and ``is_served`` are about
    this node's groups, see ``OffsetCleanups``. Of ``topics`` (name, partitions), those that are missing are created.
    ``ready``: set when the node has joined, has the cluster's topics and users, all of these topics exist, and the
    other nodes know this one.
    """

    def __init__(
        self,
        node: ClusterNode,
        environment: SessionEnvironment,
        catalogue: TopicCatalogue,
        configs: DynamicSettings,
        random: Random,
        delete_offsets: DeleteOffsets,
        is_served: Callable[[int], bool],
        topics: Sequence[tuple[str, int]],
    ) -> None:
        limits: SharedTopicLimits = configs.settings
        self._node = node
        self._catalogue = catalogue
        self._group_configs = configs.groups
        self._versions = TopicsLog(PatientStore(node.store), environment)
        self._follower = TopicsFollower(self._versions, Adoption(catalogue, limits), self._applied)
        self._changes = TopicChanges(self._versions, node.counts.offsets, self._follower.follow, limits)
        self._cleanups = OffsetCleanups(delete_offsets, is_served, self._report_cleaned)
        self._leadership = TopicLeadership(node.counts.offsets, self._follower.first_epoch)
        self.admin = SharedTopicAdmin(catalogue, self._changes, limits, random, self._epoch_of)
        self.group_admin = SharedGroupConfigAdmin(configs, self._changes)
        self._security: SecurityStore | None = None
        self.ready = asyncio.Event()
        self._joined: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        for topic in self._topics():
            self._leadership.place(topic)
        self._task = asyncio.get_running_loop().create_task(self._begin(topics, environment))

    async def _begin(self, topics: Sequence[tuple[str, int]], environment: SessionEnvironment) -> None:
        try:
            while not await self._follow_first():
                await environment.sleep(REFUSED_PAUSE_S)
        except Unreadable:
            return  # it was logged
        is_new = await self._joined
        for name, partitions in topics:
            await self._ensure(name, partitions)
        if is_new:  # until all nodes that are not slow list it; partitions do not move to it before either
            await environment.sleep(environment.calm_s)
        self.ready.set()

    async def _follow_first(self) -> bool:
        """Whether the store has answered. Raises Unreadable."""
        try:
            await self._follower.follow()
        except Unreadable:
            raise
        except StoreRefused:  # it was logged
            return False
        return True

    async def _ensure(self, name: str, partitions: int) -> None:
        """Another node may create the topic at the same time."""
        while (topic := self._catalogue.get(name)) is None:
            [outcome] = await outcome_of(partial(self.admin.create, [NewTopic(name, partitions)]))
            if not isinstance(outcome, Topic) and outcome.code not in CREATED_BY_ANOTHER_NODE:
                log.error("a topic could not be created", topic=name, reason=str(outcome))
                return
        if len(topic.partitions) != partitions:
            log.warning("the topic exists with another number of partitions", topic=name, has=len(topic.partitions))

    def follow_security(self, security: SecurityStore) -> None:
        """Have the cluster's users, ACLs and quotas in ``security`` from now on."""
        self._security = security
        security.share(self._change_security)

    def _change_security(self, change: DocumentChange, done: Callable[[Exception | None], None]) -> None:
        def apply(draft: SharedTopicsDraft) -> Steps[None]:
            before = draft.security or SecurityDocument()
            after = yield from change(before)
            if after is not before:
                draft.security = after

        self._changes.submit(apply, done)

    def halt(self) -> None:
        """Change and follow nothing any more."""
        self._task.cancel()
        self._changes.halt()
        self._follower.halt()

    def _topics(self) -> list[Topic]:
        topics = (self._catalogue.get(name) for name in self._catalogue.names())
        return [topic for topic in topics if topic is not None]

    def _epoch_of(self, name: str) -> int:
        register = self._node.register
        return 0 if register is None else register.epochs[led_with(name, self._node.counts.offsets)]

    # Followed --------------------------------------------------------------------------------------------------------

    def joined(self, cluster_id: str, *, is_new: bool) -> None:
        if not self._joined.done():
            self._joined.set_result(is_new)
        self._catalogue.use_offsets_topic_id(shared_offsets_topic_id(cluster_id))

    def next_key(self) -> str | None:
        document = self._versions.current
        return None if document is None else version_key(TOPICS, document.version + 1)

    def notice(self) -> None:
        self._follower.follow().add_done_callback(asyncio.Future.exception)  # it was logged

    def note_unchanged(self, key: str, asked_s: float) -> None:
        self._versions.note_newest(number_of(key) - 1, asked_s)

    async def follow(self) -> None:
        """Return when this node has the newest version. Raises StoreRefused."""
        await self._follower.follow()

    async def _applied(self, before: TopicsDocument | None, document: TopicsDocument) -> None:
        if before is not None:
            self.admin.remember_deleted(before.topics.keys() - document.topics.keys())
        self._group_configs.replace(document.groups)  # also those of a file from before the node was in the cluster
        if self._security is not None:
            failure = await outcome_of(partial(self._security.adopt, document.security))
            if failure is not None:
                raise failure
        self._cleanups.clean(document)
        self._changes.retry_blocked()

    # Partitions of the node ------------------------------------------------------------------------------------------

    async def begin_load(self, partition: int, epoch: int) -> None:
        """Call it before a partition is loaded.

        Whoever owned it before may have cleaned it. So this node must know all deletions before it accepts a commit.
        """
        await self.follow()
        if partition < self._node.counts.offsets and self._follower.applied is not None:
            self._cleanups.load(partition, epoch, self._follower.applied)

    def gained(self, epochs: Mapping[int, int]) -> None:
        self._leadership.gain(epochs, self._topics())

    def lost(self, partitions: Collection[int]) -> None:
        self._cleanups.lose(partitions)
        self._leadership.lose(partitions, self._topics())

    def fenced(self) -> None:
        self.lost(range(sum(self._node.counts)))

    def published(self, topic: Topic) -> None:
        self._leadership.place(topic)

    def _report_cleaned(self, cleaned: Mapping[int, Collection[int]]) -> None:
        def done(error: CoordinatorError | None) -> None:
            if error is not None:
                self._report_cleaned(cleaned)

        self._changes.submit(lambda draft: draft.clean(cleaned), done)
