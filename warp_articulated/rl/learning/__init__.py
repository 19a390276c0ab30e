"""Learning algorithms on batches of environments, in plain torch. Each is a `Learner`; `train` runs any of them."""
