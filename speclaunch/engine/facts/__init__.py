"""What is known about this machine; gathered once."""
