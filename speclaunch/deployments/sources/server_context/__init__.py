"""Server context in a manifest: pods, routers, Services, and groups of servers.

Imported only for files with a server in a manifest. The entry points are `kubernetes.py` and
`compose.py`.
"""
