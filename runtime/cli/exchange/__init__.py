"""``callboard export`` and ``callboard import``: offsets as a table, and whole logs from and to a Kafka.

- export.py, imports.py: the command lines.
- rows.py: a table of committed offsets, as CSV and as JSON, in one order wherever it comes from.
- table.py: that table from a data folder, or from a running server.
- parse.py: the table read back from a file, every line checked before anything is written.
- restore.py: offsets written through a coordinator, and read back.
- kafka_folder.py: the folder of a stopped Kafka; kafka_in.py and kafka_out.py: a log out of it, and into it.
"""
