"""Kafka's wire protocol. Connections split bytes into frames, which kio decodes. The module of each API converts a
request into messages for actors, and their replies into a response of the request's version.
"""
