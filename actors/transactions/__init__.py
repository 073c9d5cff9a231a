"""Transactional ids: their rules, and the actor that serialises their requests."""
