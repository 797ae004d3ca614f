"""Second moments of batches of token sequences through a Transformer with softmax attention."""
