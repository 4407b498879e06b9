"""What `tools/fuzz.py` asks, and with which texts."""
