"""Launch of an engine, from its start to its end."""
