"""Which way is best, and do it: search, evaluate, check and explain parallel training plans."""
