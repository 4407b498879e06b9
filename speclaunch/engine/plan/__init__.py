"""The plan: what one engine version runs with, resolved from a request."""
