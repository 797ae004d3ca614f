"""One module per source, in its own notation: what it prints, as claims."""
