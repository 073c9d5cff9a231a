"""A pytest plugin for tests with kafka-python's consumer: it looks for its topics each second.

Version 3.0 forgets to ask for the topics that it subscribes to while its first request for metadata is on its way,
whatever the server does: the answer to that one counts as news. Then it sleeps until it would ask anyway, five minutes.
On a busy machine that is one test in a thousand.
"""

from __future__ import annotations

import warnings
from importlib import import_module


def pytest_configure() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own
        kafka = import_module("kafka")
    kafka.KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 1000
