"""What was measured: the device by its driver's name, the machine around it, the versions of what ran."""

import os
import platform
import re
from collections.abc import Mapping
from typing import Any, Final

import torch

from cost_models.profiles import list_devices, load_device, this_host
from cost_models.profiles.found import slug
from cost_models.profiles.measured import Machine

DRIVER_NAMES: Final[Mapping[str, str]] = {
    r"\bH200\b(?!.*NVL)": "h200-sxm",
    r"\bH100 80GB HBM3\b|\bH100 SXM": "h100-sxm-80gb",
    r"\bH100 PCIe\b": "h100-pcie",
    r"\bH800\b": "h800-sxm-80gb",
    r"\bA100-SXM\d?-80GB\b": "a100-sxm-80gb",
    r"\bA100-SXM\d?-40GB\b": "a100-sxm-40gb",
    r"\bA100[ -]80GB PCIe\b|\bA100-PCIE-80GB\b": "a100-pcie-80gb",
    r"\bA100-PCIE-40GB\b": "a100-pcie-40gb",
    r"\bA800-SXM\d?-80GB\b": "a800-sxm-80gb",
    r"\bA10G\b": "a10g",
    r"\bL40S\b": "l40s",
    r"\bL4\b": "l4",
    r"\bRTX 4090\b": "rtx-4090",
    r"\bV100-SXM2-16GB\b": "v100-sxm2-16gb",
    r"\bV100-SXM2-32GB\b": "v100-sxm2-32gb",
    r"\bV100-SXM3-32GB\b": "v100-sxm3-32gb",
    r"\bGB300\b": "gb300",
    r"\bGB200\b": "gb200",
    r"\bB300\b": "b300",
    r"\bB200\b": "b200",
    r"\bMI250X\b": "mi250x",
    r"\bMI300X\b": "mi300x",
    r"\bMI325X\b": "mi325x",
    r"\bMI355X\b": "mi355x",
}
"""Driver's name -> device of the catalog; the memory must agree too."""
SAME_MEMORY: Final = 0.05
"""A device of a known name whose memory differs by more than this share is another device."""


def device_name(device: torch.device) -> str:
    """The catalog's name of an accelerator, else one made from its driver's; of a CPU its model and cores."""
    if device.type == "cpu":
        return this_host().device
    driver, memory = torch.cuda.get_device_name(device), _properties(device).total_memory
    return catalog_name(driver, float(memory))


def catalog_name(driver: str, memory_bytes: float) -> str:
    """The device of the catalog that a driver's name and memory belong to, else a name of its own."""
    for pattern, name in DRIVER_NAMES.items():
        if re.search(pattern, driver) and name in list_devices():
            known = load_device(name).capacity_bytes.value
            if abs(memory_bytes / known - 1.0) <= SAME_MEMORY:
                return name
    return slug(driver)


def machine(device: torch.device) -> Machine:
    """The facts of this machine and of the device."""
    host = this_host()
    facts = {"system": platform.platform(), "python": platform.python_version()}
    driver, memory = host.processor, float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if device.type == "cuda":
        properties = _properties(device)
        driver, memory = torch.cuda.get_device_name(device), float(properties.total_memory)
        facts["compute_units"] = str(properties.multi_processor_count)
        facts["l2_bytes"] = str(getattr(properties, "L2_cache_size", 0))
        facts["capability"] = str(getattr(properties, "gcnArchName", "")) or (
            f"{properties.major}.{properties.minor}"
        )
        facts["devices"] = str(torch.cuda.device_count())
    return Machine(
        driver_name=driver,
        processor=host.processor,
        cores=host.cores,
        memory_bytes=memory,
        load_before=os.getloadavg()[0] / host.cores,
        facts=facts,
    )


def versions() -> dict[str, str]:
    """Versions of what runs the kernels."""
    found = {"torch": torch.__version__, "blas": _blas()}
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda or torch.version.hip)
        cudnn: Any = torch.backends.cudnn
        found["cudnn"] = str(cudnn.version())
        nccl: Any = getattr(torch.cuda, "nccl", None)
        found["nccl"] = ".".join(str(part) for part in nccl.version()) if nccl else ""
    return found


def _blas() -> str:
    text = torch.__config__.show()
    found = re.search(r"BLAS_INFO=(\w+)", text)
    return found.group(1) if found else "unknown"


def _properties(device: torch.device) -> Any:
    return torch.cuda.get_device_properties(device)
