"""Output of `speclaunch plan` as text, JSON or page: one plan, or a comparison."""
