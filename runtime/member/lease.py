"""How long a member may work without hearing from its coordinator. Pure: all times are arguments, in seconds.

The coordinator gives a member's work to others when nothing was heard of it for a session timeout, or when it has not
come to a rebalance within the rebalance timeout. It counts from when it handled a request of ours, which is after we
sent it; so a deadline that counts from when the request was *sent* comes first, whatever the network did between. The
margin is for the time that it takes to stop. Clocks need not agree, they need only run equally fast.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = float("-inf")


class Terms(NamedTuple):
    """What a member has agreed with the coordinator, in seconds."""

    session_s: float
    rebalance_s: float
    margin_s: float
    interval_s: float  # between heartbeats


class Lease:
    """When the work of one member is lost.

    ``heard_s`` is when the last request was sent whose answer shows that our session was renewed. ``calm_s`` is the
    same for an answer that shows that no rebalance was under way, so that one that we do not know of began later.
    """

    __slots__ = ("calm_s", "heard_s", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.heard_s = self.calm_s = NEVER

    def heard(self, sent_s: float) -> None:
        """We are a member, but a rebalance is under way."""
        self.heard_s = max(self.heard_s, sent_s)

    def joined(self, sent_s: float) -> None:
        """A rebalance has ended for us. Of the session that says nothing.

        A join or a sync that is answered at once, since nothing has changed, does not renew it, as in Kafka; and nobody
        can tell it from one that was parked, which does.
        """
        self.calm_s = max(self.calm_s, sent_s)

    def calm(self, sent_s: float) -> None:
        """We are a member, and nobody waits for us."""
        self.heard_s = max(self.heard_s, sent_s)
        self.calm_s = max(self.calm_s, sent_s)

    def deadline_s(self) -> float:
        """When all work is lost, unless something is heard before."""
        return self.end_s() - self.terms.margin_s

    def end_s(self) -> float:
        """Until then the coordinator gives the work to nobody else, if we do not come to it."""
        terms = self.terms
        return min(self.heard_s + terms.session_s, self.calm_s + terms.rebalance_s)

    def hand_back_deadline_s(self) -> float:
        """When what is handed back must be done with, so that the join comes before the others' work is lost.

        Their ``calm_s`` may be a heartbeat older than ours, and their deadline as much earlier. Where the rebalance
        timeout is too short for that, half of it must do.
        """
        terms = self.terms
        ahead_s = 2 * terms.margin_s + terms.interval_s
        return self.calm_s + max(terms.rebalance_s - ahead_s, (terms.rebalance_s - terms.margin_s) / 2)

    def is_silent(self, now_s: float) -> bool:
        """Whether the lease ends because nothing is heard, not because a rebalance takes long."""
        return now_s >= self.heard_s + self.terms.session_s - self.terms.margin_s
