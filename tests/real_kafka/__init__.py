"""A real Apache Kafka beside ours: what it answers settles how ours has to answer."""
