"""The kinds of groups, by their type. A new kind is a row here."""

from __future__ import annotations

from ..consumer_group.kind import ConsumerKind
from ..records import GroupType
from .classic_kind import ClassicKind
from .kind import GroupKind

KINDS: dict[GroupType, GroupKind] = {kind.type: kind for kind in (ClassicKind(), ConsumerKind())}
