"""A certificate as one HTML page."""
