"""What released engines refuse, read out of their own validation (`tools/refusals.py`)."""
