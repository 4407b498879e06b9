"""Random command lines, judged by released engines: what speclaunch catches of them."""
