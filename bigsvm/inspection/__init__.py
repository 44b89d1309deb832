"""What is known of a model, a run or a store."""
