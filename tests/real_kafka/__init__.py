"""Tests with a real Apache Kafka, whose responses are the reference."""
