"""Resolution of a request to the effective settings of an engine version."""
