"""Progress, messages and signals of a command at a terminal."""
