"""Request contract: each request field keeps its meaning with speculation."""
