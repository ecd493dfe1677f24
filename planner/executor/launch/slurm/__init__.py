"""Jobs of Slurm: an sbatch script around the run's own script, submitted, followed and cancelled."""

from planner.executor.launch.slurm.launcher import SlurmLauncher
from planner.executor.launch.slurm.options import SlurmOptions
from planner.executor.launch.slurm.script import sbatch_script

__all__ = ["SlurmLauncher", "SlurmOptions", "sbatch_script"]
