"""Benchmarks: launch engines, put them under load, and compare them round by round."""
