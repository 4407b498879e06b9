"""Server context of a manifest: pods, routers, Services, and the grouping into deployments.

Imported only for files with a server in a manifest. The entry points are `kubernetes.py` and
`compose.py`.
"""
