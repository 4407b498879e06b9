"""Metrics of running engines: the only module that reads them, and the test of their acceptance."""
