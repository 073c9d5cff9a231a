"""Encoding and decoding of the log: record batches, records, checksums."""
