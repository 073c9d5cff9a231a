"""Shared by all packages: errors, logging, and text for terminals."""
