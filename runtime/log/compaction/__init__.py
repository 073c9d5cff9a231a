"""Compaction: of every key only its newest record stays, as Kafka's log cleaner does it, beside a running coordinator.

``plan`` says what is worth it, ``kernel`` reads the files of one partition from the newest to the oldest and keeps what
counts, ``swap`` makes the result the log, ``publish`` shows it under Kafka's names, ``garbage`` removes what nobody can
be reading any more. Nothing here knows Spark or processes: one partition is one piece of work, and who runs it is
somebody else's choice.
"""
