"""Metrics of running engines, read only here, and the test for acceptance drops."""
