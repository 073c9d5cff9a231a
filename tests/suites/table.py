"""kafka-python's integration tests that do not pass here, with reasons. All others must pass."""

from __future__ import annotations

from source_archive import SourceArchive

KAFKA_PYTHON = SourceArchive(
    "kafka-python", "3.0.12", "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
)
BROKER_VERSION = "4.2"  # the version that the suite infers from the served APIs; 4.3 differs only in DescribeLogDirs

# The other two files test TLS and SASL, for which they start brokers.
FILES = ("test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py")
# Codecs are implemented in the client, and the available ones differ between machines.
LEFT_OUT = ("snappy", "lz4", "zstd")
TESTS = 50

FAILED_BECAUSE = {
    "retention.bytes of a topic is 64 MiB here; the test expects Kafka's default, no limit": (
        "test_admin_integration::test_describe_configs_topic_resource_returns_configs",
    ),
}

NOT_APPLICABLE_BECAUSE = {
    "it assigns partitions to broker 0, the id of the broker that it would start; the id here is 1": (
        "test_admin_integration::test_create_partitions",
    ),
    "there is no authentication, so there are no ACLs": ("test_admin_integration::test_create_describe_delete_acls",),
    "one node without replicas: ElectLeaders and reassignments are not served": (
        "test_admin_integration::test_elect_leaders",
        "test_admin_integration::test_alter_partition_reassignments",
        "test_admin_integration::test_list_partition_reassignments",
    ),
    "topics have no folders: DescribeLogDirs and AlterReplicaLogDirs are not served": (
        "test_admin_integration::test_describe_log_dirs",
        "test_admin_integration::test_alter_replica_log_dirs",
    ),
    "no quorum: DescribeQuorum is not served": ("test_admin_integration::test_describe_metadata_quorum",),
    "DescribeTopicPartitions, Metadata in pages, is not served": (
        "test_admin_integration::test_describe_topic_partitions",
        "test_admin_integration::test_describe_topic_partitions_pagination",
    ),
    "the suite skips it for this version of Kafka": (
        "test_consumer_integration::test_kafka_consumer_offsets_for_time_old",
    ),
}
