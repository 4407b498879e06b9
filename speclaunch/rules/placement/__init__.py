"""Ranks and GPUs: where the engine puts a model, and whether it can be divided so."""
