"""The stream, averages of attention and the update at initialisation: statements that several sources make of them."""
