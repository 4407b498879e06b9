"""What stands around the servers of a manifest: pods, routers, Services, which belong together.

Imported for files with a server in a manifest alone. `kubernetes.py` and `compose.py` begin.
"""
