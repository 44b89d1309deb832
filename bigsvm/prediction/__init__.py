"""A model over any number of rows: from wherever they are to a file of answers."""
