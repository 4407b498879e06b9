"""Plans with all their content, and plans compared, as `speclaunch plan` shows them."""
