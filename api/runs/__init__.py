"""Runs of plans: each under a supervisor process of its own that outlives the server and is taken up again by it."""
