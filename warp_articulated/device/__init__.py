"""A model on a device: its constants and parameters as structs, compiled kernels, launches."""
