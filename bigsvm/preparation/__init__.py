"""From raw files to a store: found, parsed, split, scaled."""
