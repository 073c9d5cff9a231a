"""``Node``: one server. Assembles its parts, and starts, stops and monitors it."""
