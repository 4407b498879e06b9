"""Deployments of several servers: prefill and decode, the ranks of one server, their router."""

NODES, RANK, ADDRESS = "nnodes", "node_rank", "dist_init_addr"
"""What makes a server one of several hosts."""
