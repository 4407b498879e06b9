"""Search for the pair of releases between which a check changes its result."""
