"""Which shapes touch, and where: one contact point per feature of a pair of shapes, with its adjoint."""
