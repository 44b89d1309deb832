"""Files that are whole, sealed, or not there."""
