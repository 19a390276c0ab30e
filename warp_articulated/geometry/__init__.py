"""Rotations, forward kinematics, tangent space and inertias in numpy and torch."""
