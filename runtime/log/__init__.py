"""The offsets log: records, batches and segments in Kafka's own format, the journal that makes a round durable.

``offsets_log.OffsetsLog`` is what the rest of the program uses; ``folder.DataFolder`` guards the folder it lives in.
Everything else here is a part of the two.
"""
