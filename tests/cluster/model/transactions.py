"""Transactions across nodes: the coordinator of a producer, its successors, and the owners of groups (the receivers).

The coordinator stores its decision, then sends a marker to each receiver, which applies the pending offsets or drops
them. A coordinator that was buried may still send markers of what it had decided, and markers land late. A producer
keeps its epoch, so the marker of one transaction could decide its next one.

If ``has_copies`` is false, each coordinator sends a marker once. Else a marker may land any number of times, answers
get lost, and a marker carries the number of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .mistakes import Mistake
from .search import Step, replaced


class Status:
    COMPLETE, ONGOING, PREPARE_COMMIT, PREPARE_ABORT = range(4)


OUTCOMES = (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
OUTCOME_NAMES = {Status.PREPARE_COMMIT: "commit", Status.PREPARE_ABORT: "abort"}


class Coordinator(NamedTuple):
    """``number``: of the transaction. ``sent`` and ``answered``: its markers, a bit for each receiver."""

    number: int = 0
    status: int = Status.COMPLETE
    sent: int = 0
    answered: int = 0


class Marker(NamedTuple):
    """``epoch``: of the coordinator that has sent it."""

    epoch: int
    number: int
    outcome: int
    receiver: int


class Request(NamedTuple):
    """A TxnOffsetCommit on its way: the offsets of a transaction for the groups of a receiver."""

    number: int
    receiver: int


class Receiver(NamedTuple):
    """``pending``, ``applied``, ``answered``: transactions as bits; ``answered``: those with acknowledged offsets.

    ``stored_epoch``: what is left of ``epoch`` when it dies. ``verified``: the transaction that is open by the
    coordinator's last answer, or 0.
    """

    epoch: int = 0
    stored_epoch: int = 0
    pending: int = 0
    applied: int = 0
    answered: int = 0
    verified: int = 0


class TransactionState(NamedTuple):
    """``coordinators`` by epoch: the last one is the coordinator, the others were buried. ``stored``: what is durable.

    ``decisions`` by transaction. ``request``: at most one.
    """

    coordinators: tuple[Coordinator, ...]
    stored: Coordinator
    decisions: tuple[int, ...]
    markers: tuple[Marker, ...]
    receivers: tuple[Receiver, ...]
    request: tuple[Request, ...]
    burials: int
    restarts: int

    @property
    def epoch(self) -> int:
        return len(self.coordinators) - 1

    @property
    def coordinator(self) -> Coordinator:
        return self.coordinators[-1]

    def with_coordinator(self, epoch: int, coordinator: Coordinator) -> TransactionState:
        return self._replace(coordinators=replaced(self.coordinators, epoch, coordinator))

    def storing(self, number: int, status: int) -> TransactionState:
        """The coordinator makes it durable."""
        coordinator = Coordinator(number, status)
        return self.with_coordinator(self.epoch, coordinator)._replace(stored=coordinator)

    def with_receiver(self, index: int, **fields: int) -> TransactionState:
        receivers = replaced(self.receivers, index, self.receivers[index]._replace(**fields))
        return self._replace(receivers=receivers)


class TransactionModel:
    """``transactions``: how many the producer makes, each with all receivers. ``burials``: of the coordinator."""

    def __init__(
        self,
        mistake: Mistake | None = None,
        transactions: int = 2,
        has_copies: bool = False,
        receivers: int = 1,
        burials: int = 2,
    ) -> None:
        self._mistake = mistake
        self._transactions = transactions
        self._has_copies = has_copies
        self._receivers = range(receivers)
        self._burials = burials

    def first_state(self) -> TransactionState:
        receivers = (Receiver(),) * len(self._receivers)
        return TransactionState((Coordinator(),), Coordinator(), (0,), (), receivers, (), self._burials, 1)

    def stuck(self, state: TransactionState) -> str:
        """Not asked here."""
        return ""

    def violation(self, state: TransactionState) -> str:
        stored = state.stored
        for number, decision in enumerate(state.decisions):
            is_complete = number < stored.number or (number == stored.number and stored.status == Status.COMPLETE)
            for receiver in state.receivers:
                violation = broken_promise(receiver, number, decision, is_complete)
                if violation:
                    return violation
        return ""

    def steps(self, state: TransactionState) -> Iterator[Step]:
        yield from self._producer_steps(state)
        yield from self._coordinator_steps(state)
        for epoch, coordinator in enumerate(state.coordinators):
            yield from self._send(state, epoch, coordinator)
        for marker in state.markers:
            yield from self._deliver(state, marker)
        for request in state.request:
            yield from self._offset_steps(state, request)
        for index in self._receivers if state.restarts else ():
            restarted = state.with_receiver(index, epoch=state.receivers[index].stored_epoch, verified=0)
            yield Step(("receiver {}: dies, another node loads its partition", index), restarted._replace(restarts=0))

    # Producer --------------------------------------------------------------------------------------------------------

    def _producer_steps(self, state: TransactionState) -> Iterator[Step]:
        number, status = state.coordinator[:2]
        is_over = status == Status.COMPLETE
        if self._mistake is Mistake.NEXT_BEFORE_MARKERS and status in OUTCOMES:
            is_over = True
        if is_over and number < self._transactions:
            following = state.storing(number + 1, Status.ONGOING)._replace(decisions=(*state.decisions, 0))
            yield Step(("producer: begins transaction {}", number + 1), following)
        elif status == Status.ONGOING:
            for index in self._receivers:
                if not state.request and not state.receivers[index].answered >> number & 1:
                    following = state._replace(request=(Request(number, index),))
                    yield Step(("producer: sends offsets of transaction {} to receiver {}", number, index), following)
            if number not in [request.number for request in state.request]:
                yield from self._decide(state, OUTCOMES, "producer: asks for {} of transaction {}")

    def _decide(self, state: TransactionState, outcomes: tuple[int, ...], label: str) -> Iterator[Step]:
        number = state.coordinator.number
        for outcome in outcomes:
            following = state.storing(number, outcome)._replace(decisions=replaced(state.decisions, number, outcome))
            yield Step((label, OUTCOME_NAMES[outcome], number), following)

    # Coordinators ----------------------------------------------------------------------------------------------------

    def _coordinator_steps(self, state: TransactionState) -> Iterator[Step]:
        number, status = state.coordinator[:2]
        if status == Status.ONGOING:
            yield from self._decide(state, (Status.PREPARE_ABORT,), "coordinator: its timeout decides {} of {}")
        if status in OUTCOMES and self._has_answers(state.coordinator):
            yield Step(("coordinator: transaction {} is complete", number), state.storing(number, Status.COMPLETE))
        if state.burials:
            loaded = Coordinator(*state.stored[:2])
            if self._mistake is Mistake.MARKERS_NOT_SENT_AGAIN and loaded.status in OUTCOMES:
                loaded = loaded._replace(answered=(1 << len(self._receivers)) - 1)
            following = state._replace(coordinators=(*state.coordinators, loaded), burials=state.burials - 1)
            yield Step(("coordinator: is buried, its successor has epoch {}", state.epoch + 1), following)

    def _has_answers(self, coordinator: Coordinator) -> bool:
        if self._mistake is Mistake.ONE_ANSWER_COMPLETES:
            return coordinator.answered != 0
        return coordinator.answered == (1 << len(self._receivers)) - 1

    def _send(self, state: TransactionState, epoch: int, coordinator: Coordinator) -> Iterator[Step]:
        """A buried coordinator sends what it knows, too."""
        outcome = coordinator.status
        if self._mistake is Mistake.MARKER_BEFORE_DECISION and outcome == Status.ONGOING:
            outcome = Status.PREPARE_COMMIT
        for index in self._receivers if outcome in OUTCOMES else ():
            if not coordinator.sent >> index & 1:
                marker = Marker(epoch, coordinator.number, outcome, index)
                following = state.with_coordinator(epoch, coordinator._replace(sent=coordinator.sent | 1 << index))
                yield Step(
                    ("coordinator of epoch {}: sends a marker, {} of {}, to receiver {}", *described(marker)),
                    following._replace(markers=tuple(sorted({*state.markers, marker}))),
                )

    # Receivers -------------------------------------------------------------------------------------------------------

    def _deliver(self, state: TransactionState, marker: Marker) -> Iterator[Step]:
        label = "a marker of epoch {} lands, {} of {}, at receiver {}"
        arguments = described(marker)
        rest = state if self._has_copies else without(state, marker)
        is_older = marker.epoch < state.receivers[marker.receiver].epoch
        if is_older and self._mistake is not Mistake.OLDER_EPOCH_ACCEPTED:
            if rest is not state:
                yield Step((label + ", and is refused", *arguments), rest)
            return
        decided = self._decided_by(state, marker)
        wrong = [number for number in numbers(decided) if number != marker.number]
        violation = f"transaction {wrong[0]} is decided by the marker of transaction {marker.number}" if wrong else ""
        applied = self._applied(rest, marker, decided)
        yield Step((label, *arguments), with_answer(applied, marker), violation)
        if self._has_copies:
            yield Step((label + ", the answer is lost", *arguments), applied, violation)

    def _decided_by(self, state: TransactionState, marker: Marker) -> int:
        carries_number = self._has_copies and self._mistake is not Mistake.NUMBER_MISSING
        return state.receivers[marker.receiver].pending & (1 << marker.number if carries_number else ~0)

    def _applied(self, state: TransactionState, marker: Marker, decided: int) -> TransactionState:
        """The receiver stores the epoch with what it applies, before it answers."""
        receiver = state.receivers[marker.receiver]
        is_kept = decided or self._mistake is not Mistake.EPOCH_WITH_PENDING_ONLY
        is_stored = is_kept and self._mistake is not Mistake.EPOCH_IN_MEMORY
        return state.with_receiver(
            marker.receiver,
            epoch=max(marker.epoch, receiver.epoch) if is_kept else receiver.epoch,
            stored_epoch=max(marker.epoch, receiver.stored_epoch) if is_stored else receiver.stored_epoch,
            pending=receiver.pending & ~decided,
            applied=receiver.applied | (decided if marker.outcome == Status.PREPARE_COMMIT else 0),
            verified=receiver.verified if self._mistake is Mistake.VERIFIED_BEFORE_MARKER else 0,
        )

    def _offset_steps(self, state: TransactionState, request: Request) -> Iterator[Step]:
        """The receiver asks the coordinator, and stores the offsets unless a marker came since."""
        number, index = request
        receiver, bit = state.receivers[index], 1 << number
        answered = state._replace(request=())
        if receiver.verified == number or self._mistake is Mistake.OFFSETS_UNVERIFIED:
            following = answered.with_receiver(
                index, pending=receiver.pending | bit, answered=receiver.answered | bit, verified=0
            )
            yield Step(("receiver {}: stores the offsets of transaction {}", index, number), following)
            return
        asked = state.coordinators if self._mistake is Mistake.VERIFIED_BY_ZOMBIE else state.coordinators[-1:]
        if (number, Status.ONGOING) in [coordinator[:2] for coordinator in asked]:
            following = state.with_receiver(index, verified=number)
            yield Step(("receiver {}: learns that transaction {} is open", index, number), following)
        if state.coordinator[:2] != (number, Status.ONGOING):
            following = answered.with_receiver(index, verified=0)
            yield Step(("receiver {}: refuses the offsets of transaction {}", index, number), following)


def described(marker: Marker) -> tuple[int, str, int, int]:
    return marker.epoch, OUTCOME_NAMES[marker.outcome], marker.number, marker.receiver


def numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def without(state: TransactionState, marker: Marker) -> TransactionState:
    return state._replace(markers=tuple(other for other in state.markers if other != marker))


def with_answer(state: TransactionState, marker: Marker) -> TransactionState:
    """The answer counts if the coordinator still waits for it."""
    coordinator = state.coordinators[marker.epoch]
    if (coordinator.number, coordinator.status) != (marker.number, marker.outcome):
        return state
    answered = coordinator.answered | 1 << marker.receiver
    return state.with_coordinator(marker.epoch, coordinator._replace(answered=answered))


def broken_promise(receiver: Receiver, number: int, decision: int, is_complete: bool) -> str:
    is_applied = receiver.applied >> number & 1
    if is_applied and decision != Status.PREPARE_COMMIT:
        return f"the offsets of transaction {number} are applied, and it is not committed"
    if is_complete and receiver.pending >> number & 1:
        return f"the offsets of transaction {number} stay pending, and it is complete"
    is_committed = is_complete and decision == Status.PREPARE_COMMIT
    if is_committed and receiver.answered >> number & 1 and not is_applied:
        return f"the acknowledged offsets of transaction {number} are not applied, and it is committed"
    return ""
