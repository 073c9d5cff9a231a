"""What runs actors: an event loop, threads, or a simulation. Nothing of Kafka."""
