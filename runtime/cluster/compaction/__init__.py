"""Compaction of a partition in the store of a cluster, by the code that compacts the local log.

``plan`` decides by a manifest whether it is worth it. ``compactor`` reads the closed segments, has them cleaned, and
creates the next manifest, which names the result. Anybody may do that who can write to the store: the owner of the
partition in the background (``cleaner``), a command, a task of Spark (``job``). Whoever loses a version has changed
nothing, and nobody but the owner's garbage collection deletes anything.
"""
