"""Kafka's assignors of the coordinator, by name. The first is the default."""

from __future__ import annotations

from .base import ServerAssignor
from .range_ import ServerRange
from .uniform import Uniform

SERVER_ASSIGNORS: dict[str, ServerAssignor] = {assignor.name: assignor for assignor in (Uniform(), ServerRange())}
