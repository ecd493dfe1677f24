"""What is installed here, which devices there are, which profiles: each with what it is good for or how to get it."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from cost_models.errors import BadInput
from cost_models.profiles import (
    list_clusters,
    list_devices,
    list_models,
    measured_devices,
    measured_profile,
    profiles_root,
)
from cost_models.units import GIB

NVIDIA_SMI_S: Final = 20.0
CORE: Final = ("numpy", "pydantic", "click", "pyyaml", "rich", "ortools")
EXTRAS: Final = {
    "torch": ("torch", "run plans on this machine, profile its devices"),
    "transformers": ("transformers", "models that no reader knows, Hugging Face weights"),
    "fastapi": ("server", "the service and its page (planner-server)"),
    "httpx2": ("client", "ask a service (--server URL)"),
    "kubernetes": ("kubernetes", "launch runs on Kubernetes"),
    "matplotlib": ("report", "figures (planner validate --plot)"),
}
PROGRAMS: Final = {
    "sbatch": "start runs under Slurm",
    "nvidia-smi": "see NVIDIA devices",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `state` is ok, missing (optional) or wrong; `hint` says what to do or what it is for."""

    subject: str
    name: str
    state: str
    detail: str
    hint: str = ""


def examine() -> tuple[Finding, ...]:
    """Everything, in the order in which it matters."""
    looks: tuple[Callable[[], tuple[Finding, ...]], ...] = (
        _python,
        _core,
        _extras,
        _programs,
        _devices,
        _profiles,
    )
    return tuple(finding for look in looks for finding in look())


def doctor_json(found: tuple[Finding, ...]) -> dict[str, object]:
    """The JSON object of `planner doctor`."""
    return {"healthy": is_healthy(found), "findings": [asdict(finding) for finding in found]}


def is_healthy(found: tuple[Finding, ...]) -> bool:
    """Whether planning works here."""
    return all(finding.state != "wrong" for finding in found)


def _python() -> tuple[Finding, ...]:
    version = platform.python_version()
    right = sys.version_info >= (3, 11)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return (
        Finding(
            "this machine",
            "python",
            "ok" if right else "wrong",
            version,
            "" if right else "use 3.11 or newer",
        ),
        Finding("this machine", "cores", "ok", f"{os.cpu_count()} cores, {memory:.0f} GiB of memory"),
    )


def _core() -> tuple[Finding, ...]:
    return tuple(
        Finding("installed", name, "ok", found)
        if (found := _version(name))
        else Finding("installed", name, "wrong", "not installed", "pip install parallelism-planner")
        for name in CORE
    )


def _extras() -> tuple[Finding, ...]:
    found = []
    for name, (extra, use) in EXTRAS.items():
        version = _version(name)
        hint = use if version else f"pip install 'parallelism-planner[{extra}]' to {use}"
        found.append(
            Finding("extras", name, "ok" if version else "missing", version or "not installed", hint)
        )
    return tuple(found)


def _programs() -> tuple[Finding, ...]:
    found = []
    for name, use in PROGRAMS.items():
        path = shutil.which(name)
        found.append(Finding("programs", name, "ok" if path else "missing", path or "not on the PATH", use))
    return tuple(found)


def _devices() -> tuple[Finding, ...]:
    """GPUs as their driver names them; torch is not loaded for this."""
    program = shutil.which("nvidia-smi")
    if program is None:
        hint = "plan for any cluster all the same; profiles and runs here use the CPU"
        return (Finding("devices", "GPU", "missing", "none seen", hint),)
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = f"nvidia-smi failed: {str(error)[:200]}"
        return (Finding("devices", "GPU", "missing", detail, "look at the driver"),)
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    return tuple(Finding("devices", f"GPU {index}", "ok", line) for index, line in enumerate(lines))


def _profiles() -> tuple[Finding, ...]:
    counts = f"{len(list_devices())} devices, {len(list_clusters())} clusters, {len(list_models())} models"
    found = [Finding("profiles", "catalog", "ok", f"{counts} in {profiles_root()}")]
    for device, folder in measured_devices():
        found.append(_measured(device, str(folder)))
    if len(found) == 1:
        hint = "planner profile measures the devices at hand; predictions stand on published runs until then"
        found.append(Finding("profiles", "measured", "missing", "none", hint))
    return tuple(found)


def _measured(device: str, folder: str) -> Finding:
    """One measured profile; a corrupt one is named with what is wrong in it."""
    try:
        profile = measured_profile(device)
    except BadInput as error:
        return Finding("profiles", device, "wrong", error.detail, f"remove or measure again: {folder}")
    if profile is None:
        return Finding(
            "profiles", device, "missing", f"{folder} was measured on another machine", "planner profile"
        )
    return Finding("profiles", device, "ok", f"measured, {profile.title}", folder)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
