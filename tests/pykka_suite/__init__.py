"""Pykka's own tests, fetched when they are wanted, and the plugin that points them at our runtime."""
