"""One server: assembles its parts, starts, stops and monitors it."""
