"""The parts of `tools/net.py`: installations that answer, and the cases they are compared with."""
