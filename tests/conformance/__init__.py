"""Compares responses of Callboard with recorded responses of a real Kafka. The tests need no Java."""
