"""Checks, one module per family: each is a function from machine facts to lines."""
