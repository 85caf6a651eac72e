"""Temporary directories."""

import fcntl
import os
import shutil
import tempfile
import weakref

__all__ = ["FileLock", "TempDirectory", "filelock", "is_source_path", "tempdir", "which"]


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

    path = property(lambda self: self.temp_dir, doc="Path of the directory.")

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


class FileLock:
    """A lock by a file: held until `release`, or as long as the object lives; other processes wait."""

    def __init__(self, path):
        self._file = open(path, "w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self):
        """Lets others in. May be called again."""
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.release()


def filelock(path):
    """A `FileLock`."""
    return FileLock(path)


def is_source_path(path):
    """Whether a file is named as a source text."""
    return os.path.splitext(path)[1] in (".c", ".cc", ".cpp", ".cxx", ".cu", ".cl")


def which(exec_name):
    """Path of a program, None if there is none."""
    return shutil.which(exec_name)
