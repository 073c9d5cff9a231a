"""Modules that all packages share: errors, logging, and text for terminals."""
