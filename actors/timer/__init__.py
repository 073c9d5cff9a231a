"""The timer actor and its timing wheel. Independent of Kafka."""
