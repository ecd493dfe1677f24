"""Builds an image and runs a command in it as a container engine would: uid 1000, a read-only root, /data and /tmp."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 1800.0  # torch is unpacked and compiled on whatever the machine has left
RUN = """
set -eu
mount --bind {root} {root}
mount -o remount,bind,ro {root}
mount -t tmpfs -o size=512m,mode=1777 tmpfs {root}/tmp
mount --bind {data} {root}/data
mount -t proc proc {root}/proc
mount --rbind /dev {root}/dev
exec chroot --userspec=1000:1000 {root} /usr/bin/env -i {environment} sh -c 'cd /data; exec "$@"' sh "$@"
"""


def why_not() -> str:
    """Why no image can be built here; "" where it can."""
    missing = [name for name in ("buildah", "debootstrap", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (tests/system-packages.txt)"
    return "" if os.geteuid() == 0 else "images are built as root"


class Image:
    """An image that was built into a folder."""

    def __init__(self, work: Path, file: str, *options: str) -> None:
        self.work = work
        self.store = (
            "--root",
            str(work / "store"),
            "--runroot",
            str(work / "run"),
            "--storage-driver",
            "vfs",
        )
        built = subprocess.run(
            [str(ROOT / "docker" / "build.sh"), str(work), file, *options],
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        assert built.returncode == 0, built.stderr[-3000:]
        self.name = built.stdout.strip()
        self.container = self._buildah("from", "--pull-never", self.name)
        self.root = Path(self._buildah("mount", self.container))
        environment = self._buildah(
            "inspect", "--format", "{{range .OCIv1.Config.Env}}{{.}} {{end}}", self.name
        )
        self.environment = environment.split()

    @property
    def user(self) -> str:
        """Whom the image runs as."""
        return self._buildah("inspect", "--format", "{{.OCIv1.Config.User}}", self.name)

    def command(self, data: Path, words: Sequence[str]) -> list[str]:
        """The command line that runs words in the image."""
        os.chown(data, 1000, 1000)
        values = {"root": self.root, "data": data, "environment": " ".join(self.environment)}
        script = RUN.format(**values)
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *words]

    def run(self, data: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run words in the image to their end."""
        command = self.command(data, words)
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def start(self, data: Path, *words: str) -> "subprocess.Popen[bytes]":
        """Run words in the image beside this process."""
        return subprocess.Popen(self.command(data, words), start_new_session=True)

    def remove(self) -> None:
        """Give the folder back."""
        self._buildah("umount", self.container)
        self._buildah("rm", self.container)

    def _buildah(self, *words: str) -> str:
        done = subprocess.run(
            ["buildah", *self.store, *words], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End what `start` started, all of it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
