"""Which measured profile belongs to a device: its newest, from the data or from the user's own folder."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cost_models.profiles.catalog import HOST_DEVICE, profiles_root
from cost_models.profiles.measured import MANIFEST_FILE, MeasuredProfile, read_profile

MEASURED_VARIABLE: Final = "PARALLELISM_PLANNER_MEASURED"
"""A folder of <device>/<date-versions>/ that stands instead of the user's own; empty: no measured profile at all."""
_CPU_FACTS: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Host:
    """The processor of this machine: a profile of a CPU is used on no other."""

    processor: str
    cores: int

    @property
    def device(self) -> str:
        """Folder name of its profiles."""
        return slug(f"{HOST_DEVICE}-{self.processor}-{self.cores}")


def user_folder() -> Path:
    """Where this user's profiles lie: the XDG data folder, as an installed program may not write beside itself."""
    given = os.environ.get(MEASURED_VARIABLE)
    if given:
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "parallelism-planner" / "measured"


def folders() -> tuple[Path, ...]:
    """Folders that are searched for measured profiles; a user without a home has none of their own."""
    if os.environ.get(MEASURED_VARIABLE) == "":
        return ()
    try:
        own: tuple[Path, ...] = (user_folder(),)
    except RuntimeError:
        own = ()
    return (profiles_root() / "measured", *own)


@contextmanager
def measured_from(folder: Path | None) -> Iterator[None]:
    """Look for measured profiles in this folder, in this process and in those that it starts; None: nowhere."""
    before = os.environ.get(MEASURED_VARIABLE)
    os.environ[MEASURED_VARIABLE] = "" if folder is None else str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[MEASURED_VARIABLE]
        else:
            os.environ[MEASURED_VARIABLE] = before


def profiles_of(device: str) -> tuple[Path, ...]:
    """Folders of all profiles of a device, oldest first; `cpu` means the processor of this host."""
    name = this_host().device if device == HOST_DEVICE else device
    found = [
        path.parent
        for folder in folders()
        for path in (folder / name).glob(f"*/{MANIFEST_FILE}")
        if re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name)
    ]
    return tuple(sorted(found, key=lambda path: path.name))


def measured_profile(device: str) -> MeasuredProfile | None:
    """The newest profile of a device, None where there is none; raises BadInput where it is corrupt."""
    found = profiles_of(device)
    if not found:
        return None
    newest = read_profile(found[-1])
    return newest if _is_of(newest, device) else None


def measured_devices() -> tuple[tuple[str, Path], ...]:
    """(device, newest profile) of every device that was measured."""
    names = {path.parent.parent.name for folder in folders() for path in folder.glob(f"*/*/{MANIFEST_FILE}")}
    return tuple((name, found[-1]) for name in sorted(names) if (found := profiles_of(name)))


def _is_of(profile: MeasuredProfile, device: str) -> bool:
    """Whether a profile was measured on the device: a folder that was renamed does not make it so."""
    if device != HOST_DEVICE:
        return profile.manifest.device == device
    host, machine = this_host(), profile.manifest.machine
    return (machine.processor, machine.cores) == (host.processor, host.cores)


def this_host() -> Host:
    """The processor's model and the cores that this process may use."""
    model = "unknown"
    if _CPU_FACTS.exists():
        text = _CPU_FACTS.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
        model = found.group(1).strip() if found else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Host(model, cores)


def slug(text: str) -> str:
    """A name of lower-case letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "device"
