"""What would it cost? Pure functions from a model, a cluster and a strategy to seconds and bytes."""
