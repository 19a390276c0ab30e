"""From q to next q: the stages of a step between the joints and the contact solver, each with its adjoint below it."""
