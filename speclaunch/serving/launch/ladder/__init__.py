"""Recovery ladder: choose the settings to reduce next when memory runs out."""
