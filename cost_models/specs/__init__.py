"""The nouns: model, cluster, job, strategy."""
