"""Jobs of Kubernetes: a JobSet or a Kubeflow TrainJob, submitted by the official client and followed."""

from planner.executor.launch.kubernetes.launcher import KubernetesLauncher
from planner.executor.launch.kubernetes.options import KubernetesOptions

__all__ = ["KubernetesLauncher", "KubernetesOptions"]
