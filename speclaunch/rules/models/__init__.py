"""SPL4xx: does this draft fit this target."""
