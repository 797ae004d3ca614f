"""Published models as data: block, initialisation, input and optimizer conventions, each with its source."""
