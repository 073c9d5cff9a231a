"""The votes of the members of a classic group for an assignor. Pure."""

from __future__ import annotations

from collections import Counter

from ..recorder.now import Offer, Votes
from ..recorder.record import NAME_CHARACTERS_MAX, NAMES_MAX, name_of
from ..steps import Steps, pieces
from .core import GroupCore
from .members import GroupMember
from .refusals import OFFERS_MAX


def votes(group: GroupCore) -> Steps[Votes | None]:
    """None for a group without members."""
    members = tuple(group.members)
    if not members:
        return None
    assignor = group.protocol_name or ""
    common = frozenset(group.members.common_protocols())
    firsts, voted = Counter[str](), Counter[str]()
    for piece in pieces(members):
        for member in piece:
            firsts.update(offer.name for offer in member.protocols[:1])
            voted.update(next(((offer.name,) for offer in member.protocols if offer.name in common), ()))
        yield
    preferred = _preferred(firsts, assignor)
    lacking: list[GroupMember] = []
    for piece in pieces(members):
        lacking += (member for member in piece if all(offer.name != preferred for offer in member.protocols))
        yield
    return Votes(
        assignor[:NAME_CHARACTERS_MAX],
        preferred[:NAME_CHARACTERS_MAX],
        _counts(firsts),
        _counts(voted),
        tuple(map(_offer, members[:NAMES_MAX])),
        tuple(map(name_of, lacking[:NAMES_MAX])),
        len(lacking),
    )


def _preferred(firsts: Counter[str], assignor: str) -> str:
    """The one that most members name first; of several, not the one in use."""
    return max(firsts, key=lambda name: (firsts[name], name != assignor), default="")


def _counts(names: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple((name[:NAME_CHARACTERS_MAX], count) for name, count in names.most_common(NAMES_MAX))


def _offer(member: GroupMember) -> Offer:
    names = (offer.name[:NAME_CHARACTERS_MAX] for offer in member.protocols[:OFFERS_MAX])
    return Offer(name_of(member), tuple(names))
