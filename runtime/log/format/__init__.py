"""Bytes of the log: record batches, records, checksums."""
