"""The Warp device code: one file a stage, every adjoint right under its forward."""
