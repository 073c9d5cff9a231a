"""Plays scripts of one classic group. Each line is a command and what it causes.

``join a v=9 => parked; Empty 0``: the command is on the left. On the right are the reply, the replies to earlier
requests, the records, and then the state and the generation. Members have short names instead of member ids.

Requests: ``join NAME [new] [changed] [OPTION=VALUE ...]`` (``new``: without its member id; ``changed``: with other
metadata), ``sync NAME [gen=N] [for=NAMES]``, ``beat``, ``commit`` and ``txn NAME [gen=N]`` (NAME ``-``: no member id),
``leave NAME ...``, ``fetch``, ``delete``, ``delete_offsets``, ``describe``, ``reset``. Others: ``advance MS``,
``durable`` and ``fail`` (the oldest record), ``close``, ``load PROTOCOL NAME ...``, ``limit MEMBERS``,
``delay MS`` (the initial one), ``times`` (the deadlines, in milliseconds from now).
"""

from __future__ import annotations

from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.actors.group.effects import Deadline
from callboard.actors.group.reset_messages import OffsetsReset, ResetOffsets
from callboard.actors.messages import (
    DeleteGroup,
    Described,
    DescribeGroup,
    Joined,
    LeavingMember,
    Left,
    OffsetDelete,
    Synced,
    TxnOffsetCommit,
)
from callboard.actors.records import GroupValue, MemberValue

from . import requests
from .ports import RecordedReply
from .simulated_group import SimulatedGroup

NUMBERS = {"session": "session_ms", "rebalance": "rebalance_ms", "v": "version"}
TEXTS = {"instance": "instance", "type": "protocol_type"}


class ScriptPlayer:
    """One group, the member ids by name, and the requests without a reply."""

    def __init__(self) -> None:
        self.group = SimulatedGroup(holds_appends=True)
        self.ids: dict[str, str] = {"-": ""}
        self.waiting: list[tuple[str, RecordedReply]] = []
        self.records = 0

    def play(self, command: str) -> str:
        """Returns what the command causes."""
        verb, *words = command.split()
        outcome = [getattr(self, f"_{verb}")(*words)]
        for name, reply in list(self.waiting):
            if not reply.is_waiting:
                self.waiting.remove((name, reply))
                outcome.append(f"{name} {self._text(name, reply.value)}")
        pending = list(self.group.pending_appends)
        outcome += [self._record(append.record.value) for append in pending[self.records :]]
        self.records = len(pending)
        group = self.group.group
        return "; ".join([*filter(None, outcome), f"{group.state_name} {group.generation}"])

    # Requests --------------------------------------------------------------------------------------------------------

    def _join(self, name: str, *words: str) -> str:
        options: dict[str, Any] = {"client": name, "version": 3}
        flags = [word for word in words if "=" not in word]
        for key, value in (word.split("=") for word in words if "=" in word):
            if key in NUMBERS:
                options[NUMBERS[key]] = int(value)
            elif key in TEXTS:
                options[TEXTS[key]] = value
            else:
                assert key == "protocols"
                options["protocols"] = requests.offers(*value.split(","), metadata=b"2" if "changed" in flags else b"1")
        if "changed" in flags:
            options.setdefault("protocols", requests.offers("range", metadata=b"2"))
        reply = self.group.join("" if "new" in flags else self.ids.get(name, ""), **options)
        if "new" in flags or name not in self.ids:
            self._find_id(name, options.get("instance", name), reply)
        return self._reply(name, reply)

    def _find_id(self, name: str, prefix: str, reply: RecordedReply) -> None:
        members = self.group.group.members
        for member_id in (*members.by_id, *members.pending):
            if member_id.startswith(f"{prefix}-") and member_id not in self.ids.values():
                self.ids[name] = member_id
        if not reply.is_waiting and reply.value.member_id:
            self.ids[name] = reply.value.member_id

    def _sync(self, name: str, *words: str) -> str:
        options = dict(word.split("=") for word in words)
        generation = int(options.get("gen", self.group.generation))
        parts = {self.ids[member]: member.encode() for member in filter(None, options.get("for", "").split(","))}
        named: dict[str, Any] = {"protocol_type": self.group.group.protocol_type}
        if "protocol" in options:
            named["protocol_name"] = options["protocol"]
        reply = self.group.sync(self.ids.get(name, name), generation, parts, instance=options.get("instance"), **named)
        return self._reply(name, reply)

    def _beat(self, name: str, *words: str) -> str:
        options = dict(word.split("=") for word in words)
        generation = int(options.get("gen", self.group.generation))
        return self.group.heartbeat(self.ids.get(name, name), generation, instance=options.get("instance")).name

    def _commit(self, name: str, *words: str) -> str:
        options = dict(word.split("=") for word in words)
        generation = int(options.get("gen", self.group.generation))
        return self.group.commit(member_id=self.ids.get(name, name), generation_id=generation).name

    def _txn(self, name: str, *words: str) -> str:
        options = dict(word.split("=") for word in words)
        generation = int(options.get("gen", self.group.generation))
        return self._code(TxnOffsetCommit(requests.GROUP, "t", 1, 0, self.ids.get(name, name), None, generation, ()))

    def _leave(self, *names: str) -> str:
        left = self.group.leave(*(LeavingMember(self.ids.get(name, name), None) for name in names))
        return self._text("", left)

    def _fetch(self) -> str:
        return self._code(requests.fetch())

    def _delete(self) -> str:
        return self._code(DeleteGroup(requests.GROUP))

    def _delete_offsets(self) -> str:
        return self._code(OffsetDelete(requests.GROUP, ()))

    def _reset(self) -> str:
        result = self.group.handle(ResetOffsets(requests.GROUP, ()))
        return self._reply("reset", result) if isinstance(result, RecordedReply) else self._text("", result)

    def _describe(self) -> str:
        return self._text("", self.group.handle(DescribeGroup(requests.GROUP)))

    def _code(self, request: Any) -> str:
        result = self.group.handle(request)
        return result.name if isinstance(result, ErrorCode) else repr(result)

    # Time, disk and settings -----------------------------------------------------------------------------------------

    def _advance(self, ms: str) -> str:
        self.group.advance(int(ms))
        return ""

    def _durable(self) -> str:
        self.records -= 1
        self.group.complete_append()
        return ""

    def _fail(self) -> str:
        self.records -= 1
        self.group.fail()
        return ""

    def _close(self) -> str:
        self.group.close(ErrorCode.NOT_COORDINATOR)
        return ""

    def _load(self, protocol: str, *names: str) -> str:
        self.ids.update({name: name for name in names})
        members = tuple(
            MemberValue(name, None, name, "/h", 60_000, 10_000, b"range 1", name.encode()) for name in names
        )
        self.group.load(GroupValue("consumer", 7, protocol, names[0] if names else None, 5, members))
        return ""

    def _limit(self, size: str) -> str:
        self.group.settings.group_max_size = int(size)
        return ""

    def _delay(self, ms: str) -> str:
        self.group.settings.group_initial_rebalance_delay_ms = int(ms)
        return ""

    def _times(self) -> str:
        """The deadlines, in milliseconds from now."""
        group, now_ms = self.group.group, self.group.clock.now_ms
        due = [deadline for deadline in group.deadlines.all(group) if deadline.due_ms is not None]
        return " ".join(f"{self._deadline(deadline)}={(deadline.due_ms or 0) - now_ms}" for deadline in due) or "none"

    # Text ------------------------------------------------------------------------------------------------------------

    def _deadline(self, deadline: Deadline) -> str:
        assert isinstance(deadline.name, tuple)
        return "-".join([deadline.name[0], *map(self._name, deadline.name[1:])])

    def _name(self, member_id: str) -> str:
        return next((name for name, known_id in self.ids.items() if known_id == member_id), member_id)

    def _reply(self, name: str, reply: RecordedReply) -> str:
        if not reply.is_waiting:
            return self._text(name, reply.value)
        self.waiting.append((name, reply))
        return "parked"

    def _text(self, name: str, value: Any) -> str:
        match value:
            case Joined(error=ErrorCode.NONE):
                listed = ",".join(self._name(member.member_id) for member in value.members)
                skip = " skip" if value.skip_assignment else ""
                return (
                    f"joined {value.generation_id} {value.protocol_name} of {self._name(value.leader)} [{listed}]{skip}"
                )
            case Synced(error=ErrorCode.NONE):
                return f"synced {value.protocol_name} {value.assignment.decode() or '-'}"
            case Left():
                return " ".join([value.error.name, *(member.error.name for member in value.members)])
            case OffsetsReset():
                return " ".join([value.error.name, *map(self._name, value.removed)])
            case Described():
                members = [
                    f"{self._name(m.member_id)}:{m.metadata.decode()}:{m.assignment.decode()}" for m in value.members
                ]
                parts = [f"{value.state}/{value.protocol_type}/{value.protocol}", *members, value.message or ""]
                return " ".join(filter(None, parts))
            case Joined() | Synced():
                return value.error.name
        return repr(value)

    def _record(self, value: GroupValue | None) -> str:
        assert value is not None
        members = ",".join(f"{self._name(m.member_id)}:{m.assignment.decode()}" for m in value.members)
        return f"record {value.generation} {value.protocol} of {self._name(value.leader or '')} [{members}]"
