"""Tables: derived cells beside the printed ones, printed results, numbers of parameters."""
