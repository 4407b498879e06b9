"""Output of `speclaunch plan`: a plan or a comparison, as text, JSON or a page."""
