"""Durable jobs: plans are searched by worker processes, taken from a queue that survives every server.

queue     the entries, on DBOS (the only module that knows it)
lease     how a server shows that it lives, and how others see that it does not
process   one worker: its pipes, its limits, its end
progress  how far a search is; bounds never worsen within an attempt
solve     one plan on this server, from its entry in the queue to a final state
rescue    what is done for others: dead servers' plans, entries that are missing or stranded
jobs      all of it, started and stopped
"""

from api.jobs.jobs import Jobs

__all__ = ["Jobs"]
