"""What commands share: their options, the networks that options describe, and how an answer is written."""
