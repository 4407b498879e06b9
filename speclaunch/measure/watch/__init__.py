"""Running engines, watched: readings, their history, what is wrong."""
