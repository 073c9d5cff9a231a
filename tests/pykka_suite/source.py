"""Pykka's source distribution, for the tests in it: constraints.txt pins the same version."""

from __future__ import annotations

from source_archive import SourceArchive

PYKKA = SourceArchive("pykka", "4.5.0", "820fcc36046552b49d7eb61fe98088d1a29631cf3314e8ce4bc26aaead8dcd4f")
