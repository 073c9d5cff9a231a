"""Recorded responses of a real Kafka, compared with those of Callboard in every test run, without Java."""
