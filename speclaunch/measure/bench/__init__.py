"""Benchmarks: launch engines, load them with their own generator, compare round by round."""
