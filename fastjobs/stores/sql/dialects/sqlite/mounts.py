"""Which file system a file is on, where the machine says so: on Linux."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

# SQLite's locks need the whole of POSIX's advisory locks and a shared mapping of the -shm, which none of these has
# among several machines.
_OF_A_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|ceph|9p|lustre|glusterfs|gfs2|ocfs2|ncpfs|davfs|beegfs\w*|gpfs|virtiofs"
    r"|fuse\.(?:sshfs|glusterfs|ceph\w*|s3fs|gcsfuse|rclone|davfs2?|juicefs|smbnetfs|blobfuse2?)"
)


def file_system(path: str) -> str | None:
    """The type of the file system that the path is on, as "ext4"; None where it can't be told."""
    try:
        text = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    real = os.path.realpath(path)
    best, found = "", None
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        under = real == point or real.startswith(point.rstrip("/") + "/")
        # A later mount at the same point covers the earlier one.
        if under and len(point) >= len(best):
            best, found = point, after.split()[0]
    return found


def is_of_a_network(name: str) -> bool:
    """Whether the file system of this type may be on another machine."""
    return _OF_A_NETWORK.fullmatch(name) is not None
