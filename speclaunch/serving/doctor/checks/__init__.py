"""The checks, one module a family: each is a function from the surroundings to lines."""
