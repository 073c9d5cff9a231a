"""Tests of the cluster, and their tools: engines to test a store with, a private PostgreSQL, an object store."""
