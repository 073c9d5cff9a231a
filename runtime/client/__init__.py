"""A small blocking client of Kafka's wire protocol, for commands.

- ``BlockingConnection`` (blocking.py) sends one request at a time to one broker.
- ``Cluster`` (cluster.py) sends requests to the right brokers, and returns plain values.

It is not for consumers: it does not join groups, does not keep connections alive, and retries little.
"""
