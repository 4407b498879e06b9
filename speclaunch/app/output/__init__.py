"""Presentation of results to users, independent of their computation."""
