"""SPL9xx: what the engine changes by itself."""
