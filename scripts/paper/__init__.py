"""The experiments of Alaiz and Suykens' paper; `python -m scripts.paper.reproduce` runs them."""
