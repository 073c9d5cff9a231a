"""An exhaustive model of the cluster's protocol, in small scopes: each state, and each order of steps, is looked at.

``python -m cluster.model`` searches the scopes; ``--plants`` plants mistakes, and prints the shortest trace to each.
docs/simulation.md says what the model covers.
"""
