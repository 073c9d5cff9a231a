"""``callboard log``: show, check and repair a log. All but ``repair`` only read, also while a server runs.

- commands.py: the command line; actions.py: what its commands do.
- scan.py: all records of a data folder, and the damage between them.
- dump.py: records as a table or as JSON lines.
- stats.py: live and dead records.
- newest.py: the content of a partition, as a server loads it.
- verify.py: checks every checksum, and that three ways of reading agree.
- repair.py: removes unreadable records, and keeps the original files.
- new_info.py: makes a new ``callboard.json``, if its numbers of partitions fit the content of the folder.
"""
