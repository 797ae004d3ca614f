"""What solves "the update does not depend on depth": alpha, lambda, beta, gamma, and growing streams."""
