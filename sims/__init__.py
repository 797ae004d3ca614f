"""Measured: real PyTorch networks, plain numbers in and records out. The modules arrive in later versions."""
