"""Names that ``--help`` shows, without importing theory; a test holds them against what theory knows."""

from __future__ import annotations

NORMS = "post, pre or sub"
ARCHITECTURES = "encoder, decoder or encoder-decoder"
SELECTIONS = "deepnet, symmetric, alpha-one, relative or lambda-one"
OPTIMIZERS = "sgd, momentum, adam, adamw, rmsprop, signsgd, lion, adafactor, lars, lamb, muon or sophia"
