"""The whole coordinator and its members in virtual time, under seeds, with checkers."""
