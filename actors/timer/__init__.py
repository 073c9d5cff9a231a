"""The timer actor and its timing wheel. Nothing of Kafka."""
