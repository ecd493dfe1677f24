"""Reads profiles/: devices, clusters and models of the catalog, and what was measured on a device."""

from cost_models.profiles.catalog import (
    HOST_DEVICE,
    ROOT_VARIABLE,
    cluster_from_spec,
    host_device,
    list_clusters,
    list_devices,
    list_models,
    load_cluster,
    load_device,
    load_preset,
    model_config,
    profiles_root,
    profiles_sha256,
)
from cost_models.profiles.found import (
    MEASURED_VARIABLE,
    measured_devices,
    measured_from,
    measured_profile,
    this_host,
    user_folder,
)
from cost_models.profiles.measured import MeasuredProfile, Point, read_profile

__all__ = [
    "HOST_DEVICE",
    "MEASURED_VARIABLE",
    "ROOT_VARIABLE",
    "MeasuredProfile",
    "Point",
    "cluster_from_spec",
    "host_device",
    "list_clusters",
    "list_devices",
    "list_models",
    "load_cluster",
    "load_device",
    "load_preset",
    "measured_devices",
    "measured_from",
    "measured_profile",
    "model_config",
    "profiles_root",
    "profiles_sha256",
    "read_profile",
    "this_host",
    "user_folder",
]
