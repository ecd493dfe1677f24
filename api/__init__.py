"""The planner over HTTP: the contract of docs/api.md. Importing this package loads no web framework."""
