"""What runs the actors: the event loop's dispatcher, the log, Kafka's wire, the command line.

- dispatcher.py, mailbox.py, reply.py, system.py: actors on an event loop.
- log/: the offsets log in Kafka's format, and the journal that makes it durable.
- kafka/: frames, connections, one module an API, topics in memory.
- node.py puts all of it together; serve.py and cli.py are the commands.
"""
