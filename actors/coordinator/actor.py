"""CoordinatorActor: knows all groups, makes them, lists them, lets them go.

The directory is written by this actor alone. The front door reads it, so that a request to a group that exists goes
straight into that group's mailbox; everything else comes here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ..base import DEFERRED, ActorRef, ChildAsleep, ChildFailed, Envelope, SteadfastActor
from ..engine_ports import Clock, ReplyTo
from ..errors import ErrorCode
from ..group.actor import GroupActor
from ..group.effects import Counts, Expiry
from ..group.environment import GroupEnvironment
from ..group.in_flight import Kept
from ..group.offsets import GroupData, Offsets, packed_protocol_type
from ..group.states import ABSENT, Action, Request, State
from ..javahash import offsets_partition
from ..messages import (
    AllLoaded,
    DeleteGroup,
    Described,
    DescribeGroup,
    ExpireOffsets,
    ForgetTopics,
    GroupChanged,
    GroupGone,
    GroupRequest,
    GroupsLoaded,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Left,
    LeftMember,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PartitionLoaded,
    SettingsChanged,
    Shutdown,
    SyncGroup,
    TopicsDeleted,
    TxnOffsetCommit,
    Walked,
    WalkOn,
)
from ..ports import GroupSettings, Random
from ..refusal import refusal
from ..strings import STRING_BYTES_MAX, fits_a_string, too_long_string
from ..timer.messages import Expired
from .availability import Unserved
from .group_scan import Walk
from .retention import Sweep
from .topic_cleanup import Purge

log = logging.getLogger("callboard.actors")

REQUESTS: Mapping[type, Request] = {
    JoinGroup: Request.JOIN_NEW,
    SyncGroup: Request.SYNC,
    Heartbeat: Request.HEARTBEAT,
    LeaveGroup: Request.LEAVE,
    OffsetCommit: Request.COMMIT,
    TxnOffsetCommit: Request.TXN_COMMIT,
    OffsetFetch: Request.FETCH,
    OffsetDelete: Request.DELETE_OFFSETS,
    DescribeGroup: Request.DESCRIBE,
    DeleteGroup: Request.DELETE,
}


class Directory:
    """The groups by id, and the way to them."""

    def __init__(self, settings: GroupSettings) -> None:
        self.groups: dict[str, ActorRef] = {}  # those in memory
        self.asleep: dict[str, bytes] = {}  # those that are not, as ``GroupData.pack`` left them
        self.listed: dict[str, GroupChanged] = {}  # those in memory, as ListGroups tells of them
        self.unserved = Unserved()
        self.counts = Counts()
        self.on_swept: Callable[[Expiry], None] = _nothing_to_tell  # hears what each sweep has deleted
        self.coordinator: ActorRef
        self._settings = settings

    def post(self, request: GroupRequest, reply: ReplyTo) -> None:
        """Send a request to its group; the answer goes to ``reply``. What no group may see is refused at once."""
        ref = self.groups.get(request.group_id)
        if self.coordinator.actor_inbox.queue:
            ref = None  # what came before may still lie there, on its way to the same group: no overtaking
        if ref is not None and request.group_id and type(request) is not JoinGroup:
            ref.actor_inbox.put(Envelope(request, reply))  # type: ignore[arg-type]
            return
        refused = self.refuse(request)
        if refused is not None:
            reply.set(refused)
        else:
            (ref or self.coordinator).post(request, reply)

    def refuse(self, request: GroupRequest) -> Any:
        """An answer to what no group needs to see: None if the request is fit to be sent.

        Members belong to groups with a name; offsets, for historical reasons, may be committed for a group without one.
        """
        if not request.group_id and isinstance(request, JoinGroup | SyncGroup | Heartbeat | LeaveGroup):
            return refusal(request, ErrorCode.INVALID_GROUP_ID)
        if not fits_a_string(request.group_id):
            return refusal(request, ErrorCode.INVALID_GROUP_ID)
        if isinstance(request, JoinGroup):
            too_long = too_long_string(request)
            if too_long:
                log.warning(
                    "a join of group %r from %s is refused: its %s has more than %d bytes; use a shorter one (a new"
                    " member's id is made of its group.instance.id or client.id)",
                    request.group_id[:100],
                    request.client_host[:100],
                    too_long,
                    STRING_BYTES_MAX,
                )
                return refusal(request, ErrorCode.INVALID_REQUEST)
            low, high = self._settings.group_min_session_timeout_ms, self._settings.group_max_session_timeout_ms
            if not low <= request.session_timeout_ms <= high:
                return refusal(request, ErrorCode.INVALID_SESSION_TIMEOUT)
        return None


def _nothing_to_tell(_expired: Expiry) -> None:
    """Until somebody wants to hear of it."""


class CoordinatorActor(SteadfastActor):
    """Creates, finds and lists groups."""

    handlers = {
        **dict.fromkeys(REQUESTS, "absent"),
        ForgetTopics: "nothing_to_forget",
        ListGroups: "list_groups",
        GroupChanged: "group_changed",
        GroupGone: "group_gone",
        ChildAsleep: "group_asleep",
        ChildFailed: "group_failed",
        Expired: "sweep",
        GroupsLoaded: "groups_loaded",
        PartitionLoaded: "partition_loaded",
        AllLoaded: "all_loaded",
        TopicsDeleted: "topics_deleted",
        Walked: "walked",
        WalkOn: "walk_on",
        SettingsChanged: "settings_changed",
        Shutdown: "shutdown",
    }

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        random: Random,
        settings: GroupSettings,
        timer: ActorRef,
        writer: ActorRef,
        partitions: int,
        groups: Mapping[str, GroupData],
    ) -> None:
        super().__init__()
        self._directory = directory
        self._partitions = partitions
        self._loaded = groups
        self._environment = GroupEnvironment(settings, clock, random, self._actor_ref, timer, writer, directory.counts)
        self._sweep = Sweep(settings, clock, timer, self._actor_ref, directory.counts)
        self._purges: list[Purge] = []
        directory.coordinator = self._actor_ref

    def on_start(self) -> None:
        """Wake the groups that the log knows and that have members; the others sleep until somebody asks."""
        for group_id, data in self._loaded.items():
            if not data.is_gone():
                self._take_up(group_id, data)
        self._loaded = {}
        if not self._directory.unserved.loading:
            self._sweep.schedule()

    def _take_up(self, group_id: str, data: GroupData) -> None:
        """A group that has no actor now. One of which nothing is left is there until the next sweep, as in Kafka."""
        if data.may_sleep():
            self._directory.asleep[group_id] = data.pack()
        else:
            self._make(group_id, data)

    def absent(self, request: GroupRequest) -> object:
        """A request to a group that was not in the directory when it was sent."""
        ref, unserved = self._directory.groups.get(request.group_id), self._directory.unserved
        if ref is None:
            if unserved and (refused := unserved.refuse(request, self._partitions)) is not None:
                return refused
            if request.group_id in self._directory.asleep:
                ref = self._wake(request.group_id)
            elif (answer := absent_answer(request)) is not None:
                return answer
            else:
                ref = self._make(request.group_id, GroupData())
        assert self.reply_to is not None, "requests come with a place for their answer"
        ref.post(request, self.reply_to)
        return DEFERRED

    def list_groups(self, request: ListGroups) -> tuple[ListedGroup, ...] | ErrorCode:
        """Those that are known; nothing as long as some may not be."""
        unserved = self._directory.unserved
        if unserved.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if request.types and "classic" not in request.types:
            return ()
        known = (
            ListedGroup(group.group_id, group.protocol_type, group.state, "classic")
            for group in chain(self._directory.listed.values(), self._listed_asleep())
        )
        return tuple(
            group
            for group in chain(known, unserved.listed())
            if not request.states or group.state.lower() in request.states
        )

    def _listed_asleep(self) -> Iterator[GroupChanged]:
        for group_id, packed in self._directory.asleep.items():
            yield GroupChanged(group_id, State.EMPTY.value, packed_protocol_type(packed))

    def group_changed(self, message: GroupChanged) -> None:
        if message.state == State.DEAD.value:
            self._directory.listed.pop(message.group_id, None)
        else:
            self._directory.listed[message.group_id] = message

    def group_gone(self, message: GroupGone) -> None:
        self._directory.listed.pop(message.group_id, None)
        self._directory.groups.pop(message.group_id).stop(block=False)

    def group_asleep(self, message: ChildAsleep) -> None:
        """A group has left memory. Unless a request has come for it meanwhile, its data is all that is kept."""
        kept: Kept | None = message.child.retire()
        if kept is not None:
            self._directory.listed.pop(kept.group_id, None)
            self._directory.groups.pop(kept.group_id, None)
            if kept.bug is None or not kept.data.is_gone():  # else it was deleted while it failed
                self._take_up(kept.group_id, kept.data)

    def group_failed(self, _message: ChildFailed) -> None:
        """Its stand-in answers for it, under the same reference; it stays listed as it was."""

    def shutdown(self, _message: Shutdown) -> None:
        """Answered when all that came before has been handed on to the groups."""

    # Loading ---------------------------------------------------------------------------------------------------------

    def groups_loaded(self, message: GroupsLoaded) -> None:
        """Nobody is sent to who sleeps before the partition is there; one with members is whole, and is served."""
        self._directory.asleep.update(message.asleep)
        for group_id, data in message.awake.items():
            try:
                self._take_up(group_id, data)
            except Exception as error:  # the others of this message must not be lost with it
                reason = f"no group can be made of its records: {error!r}"
                log.error("group %r is set aside: %s", group_id, reason)
                self._directory.unserved.quarantined[group_id] = reason

    def partition_loaded(self, message: PartitionLoaded) -> None:
        unserved = self._directory.unserved
        unserved.quarantined.update(message.quarantined)
        if message.failure:
            unserved.failed[message.partition] = message.failure
        unserved.loading.discard(message.partition)

    def all_loaded(self, _message: AllLoaded) -> None:
        """What looks at all groups begins now."""
        self._sweep.schedule()

    # Offsets that nobody wants any more ------------------------------------------------------------------------------

    def sweep(self, _message: Expired) -> None:
        self._sweep.schedule()
        if not self._sweep.is_under_way:
            group_ids = [*self._directory.groups, *self._directory.asleep]
            walk = Walk(ExpireOffsets(), group_ids, self._to_be_swept, self._actor_ref)
            self._sweep.begin(walk)
            self._walk(walk)

    def _to_be_swept(self, group_id: str) -> ActorRef | None:
        ref = self._directory.groups.get(group_id)
        packed = self._directory.asleep.get(group_id)
        return self._wake(group_id) if packed is not None and self._sweep.concerns(packed) else ref

    def topics_deleted(self, message: TopicsDeleted) -> None:
        """Whoever is awake is told at once, and so ahead of all that comes later; the others by a walk."""
        purge = Purge(message.topics)
        for group_id, ref in self._directory.groups.items():
            purge.tell(group_id, ref)
        find = partial(self._to_be_purged, purge)
        purge.walk = Walk(purge.message, list(self._directory.asleep), find, self._actor_ref)
        self._purges = [*(one for one in self._purges if not one.walk.is_over), purge]
        self._walk(purge.walk)

    def nothing_to_forget(self, _message: ForgetTopics) -> None:
        """It was on its way to a group that is gone now, with all its offsets."""

    def _to_be_purged(self, purge: Purge, group_id: str) -> ActorRef | None:
        packed = self._directory.asleep.get(group_id)
        return self._wake(group_id) if packed is not None and purge.concerns(group_id, packed) else None

    def walked(self, message: Walked) -> None:
        if message.walk.answered():
            self._walk(message.walk)

    def walk_on(self, message: WalkOn) -> None:
        self._walk(message.walk)

    def _walk(self, walk: Walk) -> None:
        if walk.go_on():
            self.tell_me_later(WalkOn(walk))
        elif walk is self._sweep.walk:
            self._sweep.report(self._directory.on_swept)

    def settings_changed(self, _message: SettingsChanged) -> None:
        if not self._directory.unserved.loading:
            self._sweep.schedule()

    # Actors ----------------------------------------------------------------------------------------------------------

    def _wake(self, group_id: str) -> ActorRef:
        ref = self._make(group_id, GroupData.unpack(self._directory.asleep.pop(group_id)))
        for purge in self._purges:
            if not purge.walk.is_over:
                purge.tell(group_id, ref)
        return ref

    def _make(self, group_id: str, data: GroupData) -> ActorRef:
        partition = offsets_partition(group_id, self._partitions)
        ref: ActorRef = self.spawn(GroupActor, group_id, partition, data, self._environment)
        self._directory.groups[group_id] = ref
        return ref


def absent_answer(request: GroupRequest) -> Any:
    """What the table says for a group that does not exist; None if the request makes it."""
    kind = REQUESTS[type(request)]
    if isinstance(request, JoinGroup) and request.member_id:
        kind = Request.JOIN_KNOWN
    answer = ABSENT[kind]
    if isinstance(answer, ErrorCode):
        return refusal(request, answer)
    if answer is Action.CREATE_IF_SIMPLE and isinstance(request, OffsetCommit) and request.generation_id >= 0:
        tells = request.tells_unknown_group
        return refusal(request, ErrorCode.GROUP_ID_NOT_FOUND if tells else ErrorCode.ILLEGAL_GENERATION)
    if answer is Action.CREATE_IF_SIMPLE and isinstance(request, TxnOffsetCommit) and request.generation_id >= 0:
        return refusal(request, ErrorCode.ILLEGAL_GENERATION)
    if answer is Action.NOBODY_LEAVES and isinstance(request, LeaveGroup):
        nobody = tuple(
            LeftMember(m.member_id, m.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for m in request.members
        )
        return Left(ErrorCode.NONE, nobody)
    if answer is Action.READ_NOTHING and isinstance(request, OffsetFetch):
        return Offsets().fetch(request)
    if answer is Action.DESCRIBE:
        return Described(ErrorCode.NONE, request.group_id, State.DEAD.value)
    return None
