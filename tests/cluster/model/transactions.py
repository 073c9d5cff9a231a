"""Transactions across nodes: the coordinator of a producer, its successors, and the owner of a group (the receiver).

The coordinator stores its decision, then sends a marker to the receiver, which applies the pending offsets or drops
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
    """``number``: of the transaction. ``has_sent`` and ``is_answered``: its marker."""

    number: int = 0
    status: int = Status.COMPLETE
    has_sent: bool = False
    is_answered: bool = False


class Marker(NamedTuple):
    """``epoch``: of the coordinator that has sent it."""

    epoch: int
    number: int
    outcome: int


class Receiver(NamedTuple):
    """``pending``, ``applied``: transactions as bits. ``stored_epoch``: what is left of ``epoch`` when it dies.

    ``verified``: the transaction that is open by the coordinator's last answer, or 0.
    """

    epoch: int = 0
    stored_epoch: int = 0
    pending: int = 0
    applied: int = 0
    verified: int = 0


class TransactionState(NamedTuple):
    """``coordinators`` by epoch: the last one is the coordinator, the others were buried. ``stored``: what is durable.

    ``decisions`` by transaction. ``request``: the transaction of a TxnOffsetCommit on its way, or 0. ``answered``: the
    transactions whose offsets were acknowledged, as bits.
    """

    coordinators: tuple[Coordinator, ...] = (Coordinator(),)
    stored: Coordinator = Coordinator()
    decisions: tuple[int, ...] = (0,)
    markers: tuple[Marker, ...] = ()
    receiver: Receiver = Receiver()
    request: int = 0
    answered: int = 0
    burials: int = 2
    restarts: int = 1

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

    def with_receiver(self, **fields: int) -> TransactionState:
        return self._replace(receiver=self.receiver._replace(**fields))


class TransactionModel:
    """``transactions``: how many the producer makes."""

    def __init__(self, mistake: Mistake | None = None, transactions: int = 3, has_copies: bool = False) -> None:
        self._mistake = mistake
        self._transactions = transactions
        self._has_copies = has_copies

    def first_state(self) -> TransactionState:
        return TransactionState()

    def stuck(self, state: TransactionState) -> str:
        """Not asked here."""
        return ""

    def violation(self, state: TransactionState) -> str:
        stored, receiver = state.stored, state.receiver
        for number, decision in enumerate(state.decisions):
            is_pending, is_applied = receiver.pending >> number & 1, receiver.applied >> number & 1
            if is_applied and decision != Status.PREPARE_COMMIT:
                return f"the offsets of transaction {number} are applied, and it is not committed"
            is_complete = number < stored.number or (number == stored.number and stored.status == Status.COMPLETE)
            if is_complete and is_pending:
                return f"the offsets of transaction {number} stay pending, and it is complete"
            is_committed = is_complete and decision == Status.PREPARE_COMMIT
            if is_committed and state.answered >> number & 1 and not is_applied:
                return f"the acknowledged offsets of transaction {number} are not applied, and it is committed"
        return ""

    def steps(self, state: TransactionState) -> Iterator[Step]:
        yield from self._producer_steps(state)
        yield from self._coordinator_steps(state)
        for epoch, coordinator in enumerate(state.coordinators):
            yield from self._send(state, epoch, coordinator)
        for marker in state.markers:
            yield from self._deliver(state, marker)
        yield from self._offset_steps(state)
        if state.restarts:
            restarted = state.with_receiver(epoch=state.receiver.stored_epoch, verified=0)
            yield Step(("receiver: dies, another node loads its partition",), restarted._replace(restarts=0))

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
            if not state.request and not state.answered >> number & 1:
                yield Step(("producer: sends offsets of transaction {}", number), state._replace(request=number))
            if state.request != number:
                yield from self._decide(state, OUTCOMES, "producer: asks for {} of transaction {}")

    def _decide(self, state: TransactionState, outcomes: tuple[int, ...], label: str) -> Iterator[Step]:
        number = state.coordinator.number
        for outcome in outcomes:
            following = state.storing(number, outcome)._replace(decisions=replaced(state.decisions, number, outcome))
            yield Step((label, OUTCOME_NAMES[outcome], number), following)

    # Coordinators ----------------------------------------------------------------------------------------------------

    def _coordinator_steps(self, state: TransactionState) -> Iterator[Step]:
        number, status, _, is_answered = state.coordinator
        if status == Status.ONGOING:
            yield from self._decide(state, (Status.PREPARE_ABORT,), "coordinator: its timeout decides {} of {}")
        if status in OUTCOMES and is_answered:
            yield Step(("coordinator: transaction {} is complete", number), state.storing(number, Status.COMPLETE))
        if state.burials:
            loaded = Coordinator(state.stored.number, state.stored.status)
            if self._mistake is Mistake.MARKERS_NOT_SENT_AGAIN and loaded.status in OUTCOMES:
                loaded = loaded._replace(is_answered=True)
            following = state._replace(coordinators=(*state.coordinators, loaded), burials=state.burials - 1)
            yield Step(("coordinator: is buried, its successor has epoch {}", state.epoch + 1), following)

    def _send(self, state: TransactionState, epoch: int, coordinator: Coordinator) -> Iterator[Step]:
        """A buried coordinator sends what it knows, too."""
        outcomes = [coordinator.status] if coordinator.status in OUTCOMES else []
        if self._mistake is Mistake.MARKER_BEFORE_DECISION and coordinator.status == Status.ONGOING:
            outcomes = [Status.PREPARE_COMMIT]
        for outcome in outcomes if not coordinator.has_sent else []:
            marker = Marker(epoch, coordinator.number, outcome)
            following = state.with_coordinator(epoch, coordinator._replace(has_sent=True))
            label = (
                "coordinator of epoch {}: sends its marker, {} of {}",
                epoch,
                OUTCOME_NAMES[outcome],
                marker.number,
            )
            yield Step(label, following._replace(markers=tuple(sorted({*state.markers, marker}))))

    # Receiver --------------------------------------------------------------------------------------------------------

    def _deliver(self, state: TransactionState, marker: Marker) -> Iterator[Step]:
        label = "receiver: the marker of epoch {} lands, {} of {}"
        arguments = (marker.epoch, OUTCOME_NAMES[marker.outcome], marker.number)
        rest = state if self._has_copies else without(state, marker)
        if marker.epoch < state.receiver.epoch and self._mistake is not Mistake.OLDER_EPOCH_ACCEPTED:
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
        return state.receiver.pending & (1 << marker.number if carries_number else ~0)

    def _applied(self, state: TransactionState, marker: Marker, decided: int) -> TransactionState:
        """The receiver stores the epoch with what it applies, before it answers."""
        receiver = state.receiver
        is_kept = decided or self._mistake is not Mistake.EPOCH_WITH_PENDING_ONLY
        is_stored = is_kept and self._mistake is not Mistake.EPOCH_IN_MEMORY
        return state.with_receiver(
            epoch=max(marker.epoch, receiver.epoch) if is_kept else receiver.epoch,
            stored_epoch=max(marker.epoch, receiver.stored_epoch) if is_stored else receiver.stored_epoch,
            pending=receiver.pending & ~decided,
            applied=receiver.applied | (decided if marker.outcome == Status.PREPARE_COMMIT else 0),
            verified=receiver.verified if self._mistake is Mistake.VERIFIED_BEFORE_MARKER else 0,
        )

    def _offset_steps(self, state: TransactionState) -> Iterator[Step]:
        """A TxnOffsetCommit: the receiver asks the coordinator, and stores the offsets unless a marker came since."""
        number, receiver = state.request, state.receiver
        if not number:
            return
        if receiver.verified == number or self._mistake is Mistake.OFFSETS_UNVERIFIED:
            stored = state.with_receiver(pending=receiver.pending | 1 << number, verified=0)
            following = stored._replace(request=0, answered=state.answered | 1 << number)
            yield Step(("receiver: stores the offsets of transaction {}", number), following)
            return
        asked = state.coordinators if self._mistake is Mistake.VERIFIED_BY_ZOMBIE else state.coordinators[-1:]
        if Coordinator(number, Status.ONGOING) in [coordinator._replace(has_sent=False) for coordinator in asked]:
            following = state.with_receiver(verified=number)
            yield Step(("receiver: learns that transaction {} is open", number), following)
        if state.coordinator.number != number or state.coordinator.status != Status.ONGOING:
            following = state.with_receiver(verified=0)._replace(request=0)
            yield Step(("receiver: refuses the offsets of transaction {}, which is not open", number), following)


def numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def without(state: TransactionState, marker: Marker) -> TransactionState:
    return state._replace(markers=tuple(other for other in state.markers if other != marker))


def with_answer(state: TransactionState, marker: Marker) -> TransactionState:
    """The answer counts if the coordinator still waits for it."""
    coordinator = state.coordinators[marker.epoch]
    if (coordinator.number, coordinator.status) != (marker.number, marker.outcome):
        return state
    return state.with_coordinator(marker.epoch, coordinator._replace(is_answered=True))
