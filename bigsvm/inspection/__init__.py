"""The facts that `inspect` shows about a model, a run or a store."""
