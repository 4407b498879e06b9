"""One engine from its start to its end."""
