"""The front door: Kafka's wire protocol. Bytes are cut into frames and decoded by kio; an API's module turns a request
into messages for actors and their answers into the version that was asked in.
"""
