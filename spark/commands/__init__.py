"""The command lines of ``callboard history``, ``analyse`` and ``report``.

They import pyspark, pyarrow and numpy when a command runs, not when it only prints its help.

- history.py: ``callboard history``.
- questions.py: ``callboard analyse``, and the table of the questions.
- report.py: ``callboard report``.
- running.py: runs a command, and prints an error as one line.
- defaults.py: defaults of the questions' options.
"""
