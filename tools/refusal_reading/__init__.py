"""Reads what an SGLang release refuses out of its argument validation, by abstract syntax."""
