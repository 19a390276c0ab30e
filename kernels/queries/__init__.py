"""Kernels that answer questions about a state: thin loops over the stages of a step."""
