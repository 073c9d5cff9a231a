"""``callboard log``: look at a log, check it, mend it. All but ``repair`` read only, also while a server runs.

- commands.py: the command line.
- walk.py: all records of a data folder, and what is damaged between them.
- dump.py: records as a table or as JSON lines.
- stats.py: what lives in a log and what is dead.
- verify.py: every checksum, and three ways of reading that must agree.
- repair.py: takes out what cannot be read, and keeps it beside.
- new_info.py: a new ``callboard.json``, when its numbers of partitions fit what lies in the folder.
"""
