"""Names of the pipeline schedules of the contract, and which of them are modelled."""

from enum import StrEnum


class ScheduleName(StrEnum):
    """A pipeline schedule, spelt as on the command line."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"
    ZB_V = "zb-v"
    DUALPIPE = "dualpipe"
    DUALPIPE_V = "dualpipe-v"

    @property
    def is_modelled(self) -> bool:
        """Whether this package has operation lists for the schedule."""
        return self in (ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED)
