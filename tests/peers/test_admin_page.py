"""The program in docs/admin.md that changes a setting does so."""

from __future__ import annotations

import textwrap

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from project_paths import DOCS

from callboard.testing import ThreadCoordinator

ADDRESS = "127.0.0.1:9092"


def test_program_of_the_page_changes_the_setting(coordinator: ThreadCoordinator, kafka_bootstrap: str) -> None:
    assert coordinator.bootstrap == kafka_bootstrap
    _, start, rest = (DOCS / "admin.md").read_text().partition("    from confluent_kafka.admin import")
    program = textwrap.dedent((start + rest).partition("\n\n")[0])
    exec(compile(program.replace(ADDRESS, kafka_bootstrap), "admin.md", "exec"), {})
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    [described] = admin.describe_configs([ConfigResource("BROKER", "1")]).values()
    assert described.result()["group.max.size"].value == "250"
