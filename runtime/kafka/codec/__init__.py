"""Bytes of the Kafka protocol: frames, schemas, checks."""
