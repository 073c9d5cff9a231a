"""Compaction keeps only the newest record of every key, as Kafka's log cleaner does, while the coordinator is running.

``plan`` selects the files to compact. ``kernel`` reads the files of a partition from the newest to the
oldest and selects the records to keep. ``swap`` makes the result the log, ``publish`` links it under Kafka's file
names, and ``garbage`` removes files that no reader can be using. A ``job`` compacts one partition; callers choose the
process or the Spark task that runs it. ``cleaner`` decides when a node compacts in the background.
"""
