"""Logs as files of lines: read past what is broken, appended to by several processes, replaced as a whole."""

import contextlib
import errno
import fcntl
import logging
import os
import tempfile

from .. import _core
from ..error import TVMValueError

__all__ = ["no_log", "missing_log", "lines_of", "parsed_lines", "tell_read", "append_text", "write_whole"]

logger = logging.getLogger("auto_scheduler")
CUT = "the last line is incomplete and was dropped"
_told: set = set()  # warnings about files that were given


def no_log(path):
    """Why a path is no log that can be read, as the end of a sentence: "does not exist", "is a directory"; "" if it is a
    file."""
    if os.path.isfile(path):
        return ""
    if os.path.isdir(path):
        return "is a directory, not a log"
    return "is no regular file" if os.path.exists(path) else "does not exist"


def missing_log(path):
    """The error for a path that `no_log` says something about."""
    kind = IsADirectoryError if os.path.isdir(path) else FileNotFoundError
    return kind(f"log file {os.fspath(path)} {no_log(path)}")


def lines_of(f):
    """The lines of an open log. Of one that is longer than a record may be only the beginning: the parser refuses it."""
    most = _core.limits()["line"][0]
    while line := f.readline(most + 2):
        rest = line
        while len(rest) > most and not rest.endswith("\n"):
            rest = f.readline(most + 2)
        yield line if rest is line else line + "\n"


def parsed_lines(name, f, parse, say=logger.warning):
    """Pairs of a line's text and what ``parse`` makes of it, for the records of an open log.

    Comments and empty lines are skipped, and so is what ``parse`` refuses with a ValueError: at the end a warning tells how
    much that was, where and why, once in a process.

    Parameters
    ----------
    name : str
        Of the log, for messages.
    f : text file
        Opened with ``errors="surrogateescape"``.
    parse : callable
        Takes a line; None: it is no record, but nothing is wrong with it.
    say : callable
        Takes the arguments of `logging.Logger.warning`.

    Yields
    ------
    (str, object)

    Raises
    ------
    TVMValueError
        If the log holds something, but not a single record.
    """
    broken, first, good, said = [], "", 0, []
    for number, line in enumerate(lines_of(f), 1):
        if not line.strip() or line[0] in "# ":
            continue
        try:
            record = parse(line)
        except ValueError as e:
            if not line.endswith("\n"):
                said.append(CUT)
            else:
                bytes_ = isinstance(e, UnicodeEncodeError)
                first = first or ("bytes that are no UTF-8" if bytes_ else " ".join(str(e).split()))
                broken.append(number)
            continue
        good += 1
        if record is not None:
            yield line, record
    tell_read(name, good, broken, first, said, say)


def tell_read(name, good, broken, first, said, say):
    """After a log was read: the warning about what was skipped. `first`: what is wrong with the first of the `broken` lines."""
    if broken and not good:
        raise TVMValueError(f"{name} holds no tuning record (line {broken[0]}: {first}); is it a tuning log?")
    if broken:
        where = ", ".join(map(str, broken[:10])) + (", ..." if len(broken) > 10 else "")
        said.append(f"{len(broken)} broken lines were skipped (line {where}): {first}")
    text = f"{name}: {good} records read; {'; '.join(said)}"
    if said and text not in _told:  # a log is read several times in a run
        _told.add(text)
        say("%s", text)


def append_text(filename, text, sync=False):
    """Appends all of ``text`` or nothing, under a lock, so that processes may share a log.

    It is one ``write`` on a descriptor opened for appending. A line that a killed process left unfinished is ended
    first. If the disk fills up in the middle, what was written is taken back, so that the log stays whole.

    Parameters
    ----------
    filename : str or path
    text : str
        Whole lines.
    sync : bool
        Wait until the disk has it.

    Raises
    ------
    OSError
        If the file cannot be opened or written; nothing was appended then.
    """
    data = text.encode()
    fd = os.open(filename, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size > 0 and os.pread(fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            while data:
                data = data[os.write(fd, data):]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
        if sync:
            with contextlib.suppress(OSError):  # the text is written; not every file system can promise more
                os.fsync(fd)
    finally:
        os.close(fd)


FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # what freeing space mends


def write_whole(path, lines):
    """Writes a file beside ``path`` and renames it; raises OSError that says what to do."""
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".log-", dir=os.path.dirname(path))
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            f.writelines(lines)
            f.flush()
            os.fsync(f.fileno())
        os.umask(mask := os.umask(0))
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException as e:
        if os.path.exists(name):
            os.unlink(name)
        if isinstance(e, OSError):
            remedy = "; free some space (`df -h`) and repeat" if e.errno in FULL else ""
            raise OSError(e.errno, f"{path} was not changed: {e.strerror}{remedy}") from e
        raise
