"""A pytest plugin for tests with kafka-python's consumer, which then fetches metadata each second.

Version 3.0 may miss the metadata of a topic that it subscribes to while its first metadata request is pending: it takes
that answer, which lacks the topic, as current, and fetches again only after ``metadata_max_age_ms`` (five minutes). On
a busy machine that happens in about one test of a thousand.
"""

from __future__ import annotations

import warnings
from importlib import import_module


def pytest_configure() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own
        kafka = import_module("kafka")
    kafka.KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 1000
