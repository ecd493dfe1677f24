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

__all__ = [
    "HOST_DEVICE",
    "ROOT_VARIABLE",
    "cluster_from_spec",
    "host_device",
    "list_clusters",
    "list_devices",
    "list_models",
    "load_cluster",
    "load_device",
    "load_preset",
    "model_config",
    "profiles_root",
    "profiles_sha256",
]
