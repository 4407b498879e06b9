"""The language server: what lint finds, shown while somebody types."""
