"""Random command lines over real models, judged by released engines and by the rules."""
