"""Profiles a device with the modules that the executor runs: processes, the model's own layers, the written profile."""
