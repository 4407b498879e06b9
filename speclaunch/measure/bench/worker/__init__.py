"""Code that runs in the engine's interpreter and imports nothing from speclaunch."""
