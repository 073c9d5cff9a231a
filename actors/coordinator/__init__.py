"""The coordinator: which groups there are, where a request goes, scans over all groups."""
