"""A small synchronous client of Kafka's wire protocol, for commands that ask a few things and end.

- ``BlockingConnection`` (blocking.py) sends one request at a time to one broker.
- ``Cluster`` (cluster.py) knows whom to ask what, and answers in plain values.

Not for consumers: it joins no group, keeps no connection alive and retries little.
"""
