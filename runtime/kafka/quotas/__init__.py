"""Quotas of clients: what they use, and the throttling of those that use too much (KIP-219)."""
