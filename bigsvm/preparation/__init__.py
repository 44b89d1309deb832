"""From raw files to a store: finding, parsing, splitting and scaling the data."""
