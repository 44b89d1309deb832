"""Tables as they are: several files, text columns, gaps; made into rows of numbers."""
