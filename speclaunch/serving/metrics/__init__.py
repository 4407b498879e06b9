"""Metrics of running engines: their only reader, and the test for acceptance drops."""
