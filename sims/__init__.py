"""Measured: real PyTorch networks, plain numbers in and records out. `model` is the Transformer."""
