"""The recovery ladder: the next settings to reduce when memory runs out."""
