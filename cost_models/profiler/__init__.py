"""Measures a device: kernels, collectives, memory. The only part of the cost model that runs anything."""
