"""Settings shared by all tests."""

from hypothesis import settings

# The same examples on every run, so that a red test is red for everybody; no deadline, because a
# busy machine is not a bug.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
