"""The API that Kafka does not have. Its messages are in ``own_messages``."""

from __future__ import annotations

from typing import Final

ASK_NODE: Final = "ask_node"

ASK_NODE_KEY: Final = 20_000
"""Kafka has given out less than a hundred keys, in their order."""
