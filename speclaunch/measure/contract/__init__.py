"""Request contract: check that each request field keeps its meaning with speculation."""
