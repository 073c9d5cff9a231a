"""Other people's test suites against our server, fetched when they are wanted, and what is not passed, and why."""
