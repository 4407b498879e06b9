"""Search for the two adjacent releases between which the result of a check changes."""
