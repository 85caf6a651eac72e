"""Temporary directories."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

__all__ = ["TempDirectory", "tempdir"]


class TempDirectory:
    """A directory that is deleted when the object dies and at exit."""

    def __init__(self, custom_path=None, keep_for_debug=False):
        if custom_path is None:
            path = tempfile.mkdtemp(prefix="nestsmith-")
        else:
            os.makedirs(custom_path, exist_ok=True)
            path = os.fspath(custom_path)
        self.temp_dir = path
        self._delete = None if keep_for_debug else weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    @property
    def path(self):
        """Path of the directory."""
        return self.temp_dir

    def relpath(self, name):
        """Path of a file in the directory."""
        return os.path.join(self.temp_dir, name)

    def listdir(self):
        """Names of the files in the directory."""
        return os.listdir(self.temp_dir)

    def remove(self):
        """Deletes the directory now."""
        if self._delete is not None:
            self._delete()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def tempdir(custom_path=None, keep_for_debug=False):
    """A new `TempDirectory`; an existing path is used as it is and deleted at the end."""
    return TempDirectory(custom_path, keep_for_debug)
