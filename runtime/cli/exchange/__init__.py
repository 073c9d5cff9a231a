"""``callboard export`` and ``callboard import``: offsets as a table, and whole logs from and to Kafka.

- export.py, imports.py: the command lines; export_run.py, import_run.py: what they do.
- rows.py: a table of committed offsets, as CSV and as JSON, sorted.
- row_sources.py: the rows of that table, from a data folder or from a running server.
- text_source.py, parse.py, offsets_file.py: the table read from a file, with every line checked.
- restore.py: writes offsets through a coordinator, and reads them back.
- kafka_folder.py: the folder of a stopped Kafka; kafka_import.py, kafka_export.py: a log from it and to it.
"""
