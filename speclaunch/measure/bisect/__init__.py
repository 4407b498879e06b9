"""Search for the two releases between which a check changes its result."""
