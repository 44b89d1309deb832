"""The experiments of Alaiz and Suykens' paper; `scripts/reproduce.py` runs them."""
