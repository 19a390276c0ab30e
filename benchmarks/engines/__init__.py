"""Other simulators, each wrapped once for both comparisons; registry.py lists them."""
