"""Training: data, what stands before and behind the network, runs, sweeps of runs, and the store that keeps them."""
