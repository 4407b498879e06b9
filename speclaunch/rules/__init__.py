"""What will fail, serve wrongly or cost performance: one module a rule."""
