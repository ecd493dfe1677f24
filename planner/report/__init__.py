"""What a plan looks like: data of every view, one HTML file that needs nothing else, and Markdown for pull requests."""

from planner.report.views import view_of

__all__ = ["view_of"]
