"""Measurements of the real engine, with a proxy in between that breaks or delays what it says."""
