"""Directories that last as long as the process that made them, however it ends. While it lives it holds a lock on each, which the
system takes back from a process that is killed; what nobody holds is removed by whoever starts a server next."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time

__all__ = ["Scratch", "sweep"]

PREFIXES = {"server": "nestsmith-board-", "session": "nestsmith-lease-"}
YOUNG_SECONDS = 60.0  # its maker may be about to lock it


def _lock(path):
    """The descriptor of a directory that is now ours alone. Raises OSError if it is another's, or no directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


class Scratch:
    """A directory of this process.

    Parameters
    ----------
    kind : "server" or "session"
    """

    def __init__(self, kind):
        self.path = tempfile.mkdtemp(prefix=PREFIXES[kind])
        self._fd = _lock(self.path)

    def close(self):
        """Removes it with all that is in it. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def sweep():
    """Removes what processes of this user have left that were killed."""
    for prefix in PREFIXES.values():
        for path in pathlib.Path(tempfile.gettempdir()).glob(prefix + "*"):
            with contextlib.suppress(OSError):
                found = path.lstat()
                if found.st_uid != os.geteuid() or time.time() - found.st_mtime < YOUNG_SECONDS:
                    continue
                fd = _lock(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(fd)
