"""Latencies as HdrHistograms: small, and those of several measurements can be added. Needs ``hdrhistogram``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

HIGHEST_NS = 3_600_000_000_000  # an hour
DIGITS = 3  # significant ones


def is_installed() -> bool:
    """Whether hdrhistogram is installed."""
    return find_spec("hdrh") is not None


def encoded(latencies_ns: Iterable[int]) -> str:
    """The histogram in nanoseconds, as compressed base64: version 2 of HdrHistogram's format."""
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram(1, HIGHEST_NS, DIGITS)
    for latency_ns in latencies_ns:
        histogram.record_value(min(max(latency_ns, 1), HIGHEST_NS))
    text: bytes = histogram.encode()
    return text.decode()
