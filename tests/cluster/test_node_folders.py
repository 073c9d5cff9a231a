"""Data folders that a node has used with other settings."""

from __future__ import annotations

from pathlib import Path

from .cluster_server_helpers import ClusterServer, running, wait_until_balanced

COUNTS = ("--set", "offsets_topic_num_partitions=4", "--set", "transaction_state_log_num_partitions=2")
OTHER_COUNTS = ("--set", "offsets_topic_num_partitions=3", "--set", "transaction_state_log_num_partitions=2")


def test_node_that_was_refused_for_its_partition_counts_serves_with_those_of_the_cluster(tmp_path: Path) -> None:
    """Its folder had kept the wrong numbers, by which it looked for its groups in other partitions than the others."""
    store = tmp_path / "shared"
    store.mkdir()
    first, second = (ClusterServer(tmp_path, store.as_uri(), name) for name in ("n1", "n2"))
    with running([first], *COUNTS):
        assert second.launch(*OTHER_COUNTS).wait() == 2
        try:
            second.start(*COUNTS)
            wait_until_balanced([first, second])
            second.wait_for_log("partition taken over")
            assert "could not be completed" not in second.log
        finally:
            second.end()
