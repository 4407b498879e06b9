"""What `campaigns/fuzz.py` asks, and with which texts."""
