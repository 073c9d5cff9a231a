"""Member: the client's half of a consumer group, so that nobody has to write the protocol again.

It joins, leads when it is chosen, beats, hands work back and resumes from what was committed, in this process or over
TCP. It needs nothing of a coordinator but a Door (``channel.py``).
"""
