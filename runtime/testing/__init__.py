"""Tools for tests of programs that use consumer groups: virtual time, faults, a timeline, pytest fixtures.

The public names are in ``callboard.testing``. The server does not import this package.
"""
