"""The recovery ladder: which settings to step next when memory runs out."""
