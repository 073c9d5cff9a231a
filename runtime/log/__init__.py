"""The offsets log: records, batches and segments in Kafka's own format, the journal that makes a round durable.

``offsets_log.OffsetsLog`` is what a server writes through; ``folder.DataFolder`` guards the folder it lives in;
``reading`` reads a folder from outside, while a server writes or not. Everything else here is a part of these.
"""
