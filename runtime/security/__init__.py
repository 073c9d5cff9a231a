"""Who may do what: access control lists. Pure rules, apart from the wire and from files."""
