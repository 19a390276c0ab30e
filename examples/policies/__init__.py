"""Trained policies (.pt) as data; `warp-articulated play NAME` shows one, and load_policy of rl.learning reads it."""
