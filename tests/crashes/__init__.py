"""Seeded lives of the log on a disk that crashes: ``life`` lives them, ``model`` knows what must be there then."""
