"""The plan: the effective values for one engine version, resolved from a request."""
