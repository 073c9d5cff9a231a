"""``callboard backup`` and ``callboard restore``: a consistent copy of a data folder, also of a running server's.

- backup_command.py, restore_command.py: the command lines.
- snapshot.py: copies the folder; why the copy is consistent.
- held_journals.py: the journal files of the copy, kept open while the server removes them.
- copies.py: files copied with their checksums.
- contents.py: ``backup.json``, which names the files of a backup.
"""
