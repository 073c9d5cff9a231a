"""``callboard cluster``: shows, checks and changes a cluster through its store."""
