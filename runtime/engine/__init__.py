"""The actor engine: runs actors on an event loop, on threads, or in a simulation. Independent of Kafka."""
