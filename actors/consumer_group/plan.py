"""What a decision wants: records to append, sessions to renew, and deadlines to set. Nothing has happened yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ..assignors.server.base import ServerAssignor
from ..ports import TopicsView
from ..records import OffsetRecord
from ..steps import Steps
from .policy import MigrationPolicy
from .records import ConsumerRecord
from .state import GroupState


class ConsumerSettings(Protocol):
    """The settings of one consumer group. They may change at run time."""

    @property
    def max_size(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def heartbeat_interval_ms(self) -> int: ...

    @property
    def assignment_interval_ms(self) -> int: ...

    @property
    def regex_refresh_interval_ms(self) -> int: ...

    @property
    def migration_policy(self) -> MigrationPolicy: ...

    @property
    def classic_max_size(self) -> int:
        """The maximum number of members of a classic group."""


class ConsumerGroupSettings(NamedTuple):
    """The same with fixed values. Defaults are Kafka's."""

    max_size: int = 2**31 - 1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_max_size: int = 2**31 - 1


class RegexMatcher(Protocol):
    """The library that matches topics with the regular expressions of members (RE2 syntax)."""

    def problem(self, regex: str) -> str | None:
        """Why it cannot be used, as the rest of a sentence that begins with it; None if it can be used."""

    def find(self, regexes: Collection[str], names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """By expression, the names that it matches as a whole, sorted. It may be called in any thread, and blocks."""


class NoRegexes:
    """A ``RegexMatcher`` without a library."""

    def problem(self, _regex: str) -> str | None:
        return "cannot be used: this coordinator does not match topics with regular expressions; name the topics."

    def find(self, regexes: Collection[str], _names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        return dict.fromkeys(regexes, ())


class DecisionEnvironment(Protocol):
    """What a decision depends on, besides the group and the request."""

    @property
    def settings(self) -> ConsumerSettings: ...

    @property
    def topics(self) -> TopicsView: ...

    @property
    def assignors(self) -> Mapping[str, ServerAssignor]:
        """By name. The first is the default."""

    @property
    def metadata_hash(self) -> Callable[[Iterable[str]], Steps[int]]:
        """The hash of those of these topics that exist; 0 if there is none."""

    @property
    def new_member_id(self) -> Callable[[], str]: ...

    @property
    def regexes(self) -> RegexMatcher: ...

    @property
    def is_resolving(self) -> bool:
        """Whether a result of the group's regular expressions is on its way."""

    @property
    def wall_ms(self) -> int: ...


class RebalanceDeadline(NamedTuple):
    """When a member is removed that has not given back its partitions, unless its epoch is another one by then."""

    timeout_ms: int
    member_epoch: int


class Downgrade(NamedTuple):
    """The group becomes a classic one, without the members ``leaving``.

    ``joining``: the member that takes the place of a static one; "" if there is none. ``generation``: of the classic
    group. ``needs_rebalance``: whether its members have to join again.
    """

    leaving: Collection[str]
    joining: str
    generation: int
    needs_rebalance: bool


class Plan:
    """``sessions``: members whose session begins again, with its length in ms; None: as the settings say.

    ``deadlines``: None cancels the deadline of the member. ``joins`` and ``syncs``: within how many ms members of the
    classic protocol have to send JoinGroup or SyncGroup; None: they have. A member that already has to join does not
    get more time.

    ``removed``: members whose timers are cancelled. ``topics_version``: of the topics that the decision looked at;
    None if it did not. ``regexes_to_resolve``: begin to resolve these together. ``regexes_version``: of the topics that
    a result is about; None if there is no result. ``asked_ms``: when the assignor was asked that still works; None if
    it was not. ``downgrade``: after the records. ``offsets``: of a reset, in the same entry.
    """

    __slots__ = (
        *(
            "asked_ms",
            "deadlines",
            "downgrade",
            "joins",
            "offsets",
            "records",
            "regexes_to_resolve",
            "regexes_version",
            "removed",
            "sessions",
            "syncs",
        ),
        "topics_version",
    )

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.sessions: dict[str, int | None] = {}
        self.deadlines: dict[str, RebalanceDeadline | None] = {}
        self.joins: dict[str, int | None] = {}
        self.syncs: dict[str, int | None] = {}
        self.removed: list[str] = []
        self.offsets: Sequence[OffsetRecord] = ()
        self.downgrade: Downgrade | None = None
        self.topics_version: int | None = None
        self.regexes_to_resolve: Collection[str] = ()
        self.regexes_version: int | None = None
        self.asked_ms: int | None = None

    def apply_to(self, state: GroupState) -> Steps[None]:
        """Change the state: by the records, and by what is not durable."""
        yield from state.replay_all(self.records)
        seen = {
            "topics_version": self.topics_version,
            "regexes_version": self.regexes_version,
            "asked_ms": self.asked_ms,
        }
        if changes := {name: value for name, value in seen.items() if value is not None}:
            state.seen = state.seen._replace(**changes)
