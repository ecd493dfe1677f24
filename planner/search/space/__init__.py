"""The search over the whole space: which meshes are bounded, opened, settled and improved, and in which order."""
