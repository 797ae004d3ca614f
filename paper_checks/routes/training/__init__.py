"""What the records of the experiments say, and the claims that training decides."""
