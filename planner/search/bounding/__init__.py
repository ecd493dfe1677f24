"""Lower bounds of many meshes at once: none of them is opened."""
