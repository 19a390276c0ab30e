"""Learning algorithms on batches of environments, in plain torch: each is a `Learner`, and `train` runs any of them."""
