"""Errors of Spark leave the log format of later tests as it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_logger_of_failed_query_keeps_format_of_handler(spark: SparkSession) -> None:
    """pytest attaches its handlers to each logger that does not propagate, and PySpark makes one when a query fails."""
    with pytest.raises(AnalysisException):
        spark.range(1).select("missing")
    silent_loggers = [
        logger
        for logger in logging.root.manager.loggerDict.values()
        if isinstance(logger, logging.Logger) and not logger.propagate
    ]
    assert any("QueryContextLogger" in logger.name for logger in silent_loggers)
    handler = logging.StreamHandler()
    for logger in silent_loggers:
        logger.addHandler(handler)
        logger.removeHandler(handler)
    assert handler.formatter is None
