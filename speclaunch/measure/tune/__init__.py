"""Which settings of speculation are fastest: a model of cost and acceptance instead of a grid."""
