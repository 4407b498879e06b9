"""Search for the fastest speculation settings, by a model of cost and acceptance, not a grid."""
