"""Marks for tests that use kafka-python in the process of the tests."""

from __future__ import annotations

import pytest

KAFKA_PYTHON = [
    # It loads its own resources by deprecated functions.
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
    # A consumer that is closed while it connects to a broker leaves that socket to the collection of garbage.
    pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl):ResourceWarning"),
    pytest.mark.usefixtures("kafka_python_sockets"),
]
