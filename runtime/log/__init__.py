"""The offsets log: records, batches and segments in Kafka's own format, and the journal that makes writes durable.

A server writes through ``offsets_log.OffsetsLog``. ``folder.DataFolder`` locks the data folder and checks its format.
``reading`` reads a folder from another process, whether or not a server is writing to it. The other modules are parts
of these three.
"""
