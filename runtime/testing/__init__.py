"""For tests of programs that use Kafka's consumer groups: virtual time, faults, a timeline, fixtures for pytest.

``callboard.testing`` is the name under which all of it is offered. Nothing here is imported by a server.
"""
