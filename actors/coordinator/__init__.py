"""The coordinator: the directory of groups, routing of requests, scans over all groups."""
