"""``callboard groups``: the functions of Kafka's ConsumerGroupCommand, without Java, for any server.

- commands.py: the command line.
- report.py: the offsets and members of a group, from several responses.
- reset.py: the offsets that a reset writes; pure.
- tables.py: tables as text and as JSON.
"""
