"""Which of kafka-python's integration tests do not pass here, and why. All others have to."""

from __future__ import annotations

from source_archive import SourceArchive

KAFKA_PYTHON = SourceArchive(
    "kafka-python", "3.0.12", "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
)
BROKER_VERSION = "4.2"  # what the suite infers from what we serve; 4.3 differs in DescribeLogDirs alone

# The other two files ask for TLS and SASL, for which they start brokers of their own.
FILES = ("test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py")
# What a client does with codecs is not about us, and which it has differs from one machine to the next.
LEFT_OUT = ("snappy", "lz4", "zstd")
TESTS = 50

FAILED_BECAUSE = {
    "a topic holds 64 MiB here, and says so; the test expects Kafka's default, no limit": (
        "test_admin_integration::test_describe_configs_topic_resource_returns_configs",
    ),
}

NOT_APPLICABLE_BECAUSE = {
    "it puts partitions on broker 0, the number of the broker that it would start; ours is 1": (
        "test_admin_integration::test_create_partitions",
    ),
    "nothing is asked who it is, so there are no ACLs": ("test_admin_integration::test_create_describe_delete_acls",),
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
    "ListConfigResources is not served": ("test_admin_integration::test_list_config_resources",),
    "the suite itself skips it for this version of Kafka": (
        "test_consumer_integration::test_kafka_consumer_offsets_for_time_old",
    ),
}
