"""Transactional ids: their rules, and the actor that owns them."""
