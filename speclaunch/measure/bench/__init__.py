"""Benchmarks: launch engines, load them with SGLang's own generator, compare round by round."""
