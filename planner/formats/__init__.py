"""Settings of other frameworks, read into a model, a job and a strategy: one framework a package."""
