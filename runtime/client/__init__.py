"""A small blocking client of Kafka's wire protocol, for commands.

- ``Wire`` (wire.py) is one connection: requests by kio's schemas in the newest common version.
- ``Cluster`` (cluster.py) sends requests to the right brokers, and returns plain values.

It is not for consumers: it joins no group, keeps no connection alive and retries little.
"""
