"""Encoding and decoding of Kafka's wire protocol: frames, schemas, and validation."""
