"""Kafka's tools, all in one Java process: a start of Java takes longer than most of them run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from peers.peer import CommandProcess

from .kafka import JAVA_OPTIONS, programs

DUMP = "org.apache.kafka.tools.DumpLogSegments"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class ToolResult(NamedTuple):
    """What a tool has printed, and its exit code."""

    code: int
    out: str
    err: str


class KafkaTools(CommandProcess):
    """Runs the main methods of Kafka's tools: see ``KafkaTools.java``."""

    answer_deadline_s = 600.0

    def __init__(self, jars: Path, folder: Path) -> None:
        command = ["java", "-Xmx256m", *JAVA_OPTIONS, "-cp", f"{programs()}:{jars}/*", "KafkaTools"]
        super().__init__("tools", folder, command)

    def run(self, tool: str, *arguments: str) -> ToolResult:
        """Run a tool with its arguments, as its command would."""
        return ToolResult(**self.ask("run", words=[tool, *arguments]))

    def dump(self, decoder: str, *paths: Path) -> ToolResult:
        """Print files of a log with all their records."""
        return self.run(DUMP, decoder, "--print-data-log", "--files", ",".join(map(str, paths)))
