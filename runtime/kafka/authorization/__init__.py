"""Who may do what: the checks of each API, the authorizer that decides, and what is remembered on a connection."""
