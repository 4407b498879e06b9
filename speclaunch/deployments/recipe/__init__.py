"""Look up, compose and validate recipes."""
