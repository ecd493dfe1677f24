"""What a plan looks like: data of every view, one HTML file that needs nothing else, and Markdown for pull requests."""

from planner.report.content import Reported
from planner.report.reason import Reason
from planner.report.views import view_of
from planner.report.write import check_ending, write_report

__all__ = ["Reason", "Reported", "check_ending", "view_of", "write_report"]
