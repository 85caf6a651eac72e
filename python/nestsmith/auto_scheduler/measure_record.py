"""Tuning logs: one JSON line per measured program.

Logs of all releases of the established format (v0.2 to v0.6) are read; v0.6 is written.

``python -m nestsmith.auto_scheduler.measure_record --mode distill -i in.json`` keeps the best record of every workload;
the other modes are in `log_tools`.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import json
import logging
import os
import re
import tempfile
import time
import weakref
from fractions import Fraction

try:
    import fcntl
except ImportError:  # not on this system: records are still written in one piece
    fcntl = None  # type: ignore[assignment]

from .. import _core, check
from ..error import TVMValueError
from ..numerics import math_mode, mode_fits
from ..relay.passes import PassContext
from ..states import handle_of
from ..target import Target
from .cost import NOTHING, rank
from .hardware import FIELDS, HardwareParams
from .measure import MeasureInput, MeasureResult
from .signals import Held

__all__ = [
    "RecordReader", "RecordToFile", "load_records", "save_records", "load_best_record", "load_record_from_string",
    "dump_record_to_string", "distill_record_file", "decode_workload_key", "calc_workload_dis_factor",
]

logger = logging.getLogger("auto_scheduler")


class RecordState:
    """The state of a record as it was read: steps, no stages. Rebuild it with ``recover_measure_input``."""

    stages = ()
    concrete = True

    def __init__(self, text):
        self._text = text

    def steps(self):
        """The steps as JSON text."""
        return self._text

    steps_text = steps

    @property
    def transform_steps(self):
        """The steps as tuples."""
        return [tuple(s) for s in json.loads(self._text)]

    def __eq__(self, other):
        return isinstance(other, RecordState) and self._text == other._text

    def __hash__(self):
        return hash(self._text)

    def __repr__(self):
        return f"RecordState({len(self.transform_steps)} steps)"


class RecordTask:
    """The task of a record as it was read: everything but the DAG, which ``recover_measure_input`` looks up."""

    compute_dag = None
    desc = ""

    def __init__(self, workload_key, target, hardware, host, layout_rewrite, inputs, math="strict"):
        self.workload_key, self.target_text, self.host_text = workload_key, target, host
        self.layout_rewrite_option, self.task_input_names = layout_rewrite, list(inputs)
        self._hardware, self.math = hardware, math
        self._target = None

    @property
    def identity(self):
        """Equal for records of one task."""
        hardware = tuple(self._hardware or ())
        return self.workload_key, self.target_text, self.host_text, hardware, self.layout_rewrite_option, self.math, *self.task_input_names

    @property
    def target_kind(self):
        """First word of the target: ``cuda``, ``llvm``, ..."""
        return self.target_text.split(None, 1)[0] if self.target_text.strip() else ""

    @property
    def target(self):
        """The target; parsed when it is first asked for."""
        if self._target is None:
            self._target = Target(self.target_text, self.host_text or None)
        return self._target

    @property
    def target_host(self):
        """Text of the host target, or None."""
        return self.host_text or None

    @property
    def hardware_params(self):
        """Recorded hardware parameters; this machine's defaults where an old record has none."""
        if self._hardware is None:
            return HardwareParams(target=self.target)
        return HardwareParams(**dict(zip(FIELDS, self._hardware)))

    def __repr__(self):
        return f"RecordTask({self.workload_key}, {self.target_text})"


def _pair(fields):
    """(MeasureInput, MeasureResult) of the tuple that the engine's parser gives."""
    key, target, hw, host, layout, inputs, steps, costs, error_no, all_cost, timestamp, version = fields
    extra = read_marks(version)
    task = RecordTask(key, target, hw, host, layout, inputs, extra.get("math") or "strict")
    result = MeasureResult(costs, error_no, extra.get("msg", ""), all_cost, timestamp, extra)
    return MeasureInput(task, RecordState(steps)), result


# ---- marks: how a result was measured ----
#
# They follow the version in the record's field "v", which readers of the format (TVM's among them) read and ignore:
# "v0.6 stage=quick n=3 sd=0.002 l2=mixed". A key of its own would make TVM refuse the log.

_MARKS = {
    "stage": str, "n": int, "sd": float, "l2": str, "redone": int, "regs": int, "smem": int, "lmem": int, "occ": float, "cause": str,
    "class": str, "math": str,
}  # fmt: skip
_FLAGS = ("audited", "disturbed")


def write_marks(res, math="strict"):
    """The field "v" of a result of a task in a math mode."""
    extra, out = getattr(res, "extra", None) or {}, ["v0.6"] + ([f"math={math}"] if math != "strict" else [])
    if res.error_no == 0:
        if "stage" not in extra:
            return " ".join(out)
        out += [f"stage={extra['stage']}", f"n={extra.get('blocks', extra.get('n', 0))}"]
        out.append(f"sd={float(extra.get('spread', extra.get('sd', 0.0))):.2g}")
        if extra.get("l2"):
            out.append(f"l2={extra['l2']}")
        out += [f"{k}={extra[v]}" for k, v in (("redone", "redone"), ("regs", "regs"), ("smem", "shared_bytes"),
                                                   ("lmem", "local_bytes"))
                if extra.get(v)]  # fmt: skip
        if extra.get("occupancy"):
            out.append(f"occ={extra['occupancy']:.2f}")
        if extra.get("class"):
            out.append(f"class={extra['class']}")
        out += [k for k in _FLAGS if extra.get(k)]
    else:
        if not extra.get("cause"):
            return " ".join(out)
        out.append(f"cause={extra['cause']}")
        text = " ".join(str(res.error_msg).split())[:200]
        if text:
            out.append("msg=" + "".join(c for c in text if c.isprintable()))
    return " ".join(out)


def read_marks(version):
    """The dict of what `write_marks` wrote; empty for plain records. Unknown marks are left out."""
    if " " not in version:
        return {}
    text, _, msg = version.partition(" msg=")
    extra = {"msg": msg} if msg else {}
    for word in text.split()[1:]:
        key, eq, value = word.partition("=")
        if not eq and key in _FLAGS:
            extra[key] = True
        elif key in _MARKS:
            try:
                extra[key] = _MARKS[key](value)
            except ValueError:
                continue
    for short, name in (("n", "blocks"), ("sd", "spread"), ("smem", "shared_bytes")):
        if short in extra:
            extra[name] = extra[short]
    if "stage" in extra:
        extra["full"] = extra["stage"] == "full"
    return extra


def rank_of_fields(fields):
    """`cost.rank` of a record as the engine's parser gives it."""
    return rank(fields[7], fields[8], version=fields[11])


def _steps_of(state):
    return handle_of(state).steps()


def _task_fields(task):
    if isinstance(task, RecordTask):
        hw = task._hardware or task.hardware_params.as_tuple()
        target, host = task.target_text, task.host_text
    else:
        hw = task.hardware_params
        hw = hw.as_tuple() if hasattr(hw, "as_tuple") else tuple(getattr(hw, f) for f in FIELDS)
        host = getattr(task, "target_host", None) or getattr(task.target, "host", None)
        target, host = str(task.target), str(host) if host else ""
    inputs = getattr(task, "task_input_names", None) or []
    return task.workload_key, target, tuple(int(v) for v in hw), host, int(task.layout_rewrite_option), list(inputs)


def dump_record_to_string(inp, res):
    """The line of a log (with its newline) for one MeasureInput and MeasureResult."""
    key, target, hw, host, layout, inputs = _task_fields(inp.task)
    return _core.record_text(
        key, target, hw, host, layout, inputs, _steps_of(inp.state), [float(c) for c in res.costs], int(res.error_no),
        float(res.all_cost), int(res.timestamp), write_marks(res, getattr(inp.task, "math", "strict")),
    )


def load_record_from_string(record):
    """(MeasureInput, MeasureResult) of one line of a log. Raises ValueError that names the broken place."""
    return _pair(_core.record_parse(record))


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
    _tell_read(name, good, broken, first, said, say)


def _tell_read(name, good, broken, first, said, say):
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


CUT = "the last line is incomplete and was dropped"
_told: set = set()  # warnings about files that were given


class RecordReader:
    """Reads a log file; iterating gives (MeasureInput, MeasureResult) pairs.

    Comments (lines that start with ``#`` or a space) and empty lines are skipped. A last line that was cut off while
    it was written is dropped, other broken lines are skipped; a warning tells, once in a process, how many records
    there are. A missing file counts as empty, with a warning; a file without a single record, though it holds something,
    raises ValueError.
    """

    def __init__(self, filename):
        self.filename = os.fspath(filename)

    def _fields(self):
        return (fields for _, fields in self.lines())

    def lines(self):
        """Pairs of a line's text and the tuple the engine's parser gives for it.
        Raises TVMValueError if the file holds something, but not a single record."""
        if not self.is_there():
            return
        with open(self.filename, encoding="utf-8", errors="surrogateescape") as f:
            yield from parsed_lines(self.filename, f, _core.record_parse)

    def __iter__(self):
        return (_pair(x) for x in self._fields())

    def is_there(self):
        """Whether the log can be read; if not, a warning says why."""
        if no_log(self.filename):
            logger.warning("log file %s %s", self.filename, no_log(self.filename))
        return not no_log(self.filename)

    def at(self, places):
        """The pairs whose lines begin at these bytes."""
        with open(self.filename, "rb") if places else contextlib.nullcontext() as f:
            for place in places:
                f.seek(place)
                yield load_record_from_string(f.readline().decode())

    def check_workload_key(self, inputs):
        """Warns about keys without shapes, which logs older than January 2021 carry."""
        for inp in inputs:
            if not decode_workload_key(inp.task.workload_key)[1]:
                logger.warning("%s: workload key %s has no shapes", self.filename, inp.task.workload_key)
                return

    def read_lines(self, max_lines=None, skip_lines=0):
        """(inputs, results) of at most ``max_lines`` records (None or <= 0: all) after ``skip_lines`` records."""
        inputs, results = [], []
        for i, x in enumerate(self._fields()):
            if i < (skip_lines or 0):
                continue
            if max_lines and 0 < max_lines <= len(inputs):
                break
            inp, res = _pair(x)
            inputs.append(inp)
            results.append(res)
        self.check_workload_key(inputs[:1])
        return inputs, results


def log_groups(log, where):
    """What a `_core.TuneLog` holds, with the warnings of `RecordReader` and `known_targets`.

    Yields
    ------
    task : RecordTask
        Of a group of records; None if this package does not know its target.
    valid : int
        Records of it.
    failed : int
    """
    tell_faults(log, where)
    left, why = 0, ""
    for key, target, host, math, valid, failed, *_ in log.groups:
        task = RecordTask(key, target, None, host, 0, (), math or "strict")
        unknown = _unknown_target(task)
        left, why = left + (valid + failed if unknown else 0), why or unknown
        yield None if unknown else task, valid, failed
    _tell_left(where, left, why)


def tell_faults(log, where):
    """The warnings of `RecordReader` about what a `_core.TuneLog` left out."""
    broken, first, cut = log.faults
    good = sum(g[4] + g[5] for g in log.groups)
    _tell_read(where, good, broken, " ".join(first.split()), [CUT] * cut, logger.warning)


def _unknown_target(task):
    """Why this package does not know the target of a record; "" if it does."""
    try:
        return "" if task.target else ""
    except ValueError as e:
        return str(e)


def _tell_left(where, left, why):
    if left:
        logger.warning("%s: %d records were left out: %s", where, left, why)


def known_targets(pairs, where):
    """The (input, result) pairs whose targets this package knows; one warning tells what was left out and why."""
    left, why = 0, ""
    for inp, res in pairs:
        unknown = _unknown_target(inp.task)
        if unknown:
            left, why = left + 1, why or unknown
        else:
            yield inp, res
    _tell_left(where, left, why)


def load_records(filename):
    """An iterator over the (MeasureInput, MeasureResult) pairs of a log."""
    return iter(RecordReader(filename))


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
        if fcntl is not None:
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


def save_records(filename, inputs, results):
    """Appends records to a log; makes its directory if needed."""
    filename = os.fspath(filename)
    text = "".join(dump_record_to_string(i, r) for i, r in zip(inputs, results))
    os.makedirs(os.path.dirname(os.path.abspath(filename)), exist_ok=True)
    append_text(filename, text)


class RecordToFile:
    """Measure callback that appends every measured batch to a file.

    A batch is one write. The disk is asked to keep it (``fsync``) at most every five seconds and at the end of the
    process. While the file cannot be written (full disk, lost network drive) tuning goes on: the records are kept in
    memory, a warning tells so once, they are written as soon as it is possible, and a second line tells how many were
    late. What cannot be written by the end of the process goes to a file in the directory for temporary files, which
    the last line names.

    Parameters
    ----------
    filename : str
        Made, with its directory, when the first batch arrives.

    Raises
    ------
    PermissionError
        If the file or its directory exists and may not be written.
    IsADirectoryError
        If it is a directory.
    """

    SYNC_SECONDS = 5.0
    _failing: set = set()  # names of the files that a warning was given for
    _holding: set = set()  # objects whose records wait: they live until these are written

    def __init__(self, filename):
        self.filename = os.fspath(filename)
        self._waiting, self._late, self._synced, self._dirty = "", 0, time.monotonic(), False
        self._process = os.getpid()
        if os.path.isdir(self.filename):
            raise IsADirectoryError(f"{self.filename} is a directory; give RecordToFile a file, such as tuning.json in it")
        there = self.filename if os.path.exists(self.filename) else os.path.dirname(os.path.abspath(self.filename))
        if os.path.exists(there) and not os.access(there, os.W_OK):
            raise PermissionError(f"{there} may not be written; give RecordToFile another file or change its owner")
        weak = weakref.ref(self)
        atexit.register(lambda: weak() and weak().close())

    def __repr__(self):
        return f"RecordToFile({self.filename!r})"

    def callback(self, policy, inputs, results):
        """Appends one batch. Signals are acted upon when it is written."""
        with Held():
            self._waiting += "".join(dump_record_to_string(i, r) for i, r in zip(inputs, results))
            self._write(time.monotonic() - self._synced >= self.SYNC_SECONDS)

    __call__ = callback

    def _write(self, sync):
        if not self._waiting and not (sync and self._dirty):
            return True
        folder = os.path.dirname(os.path.abspath(self.filename))
        try:
            os.makedirs(folder, exist_ok=True)
            append_text(self.filename, self._waiting, sync)
        except OSError as e:
            self._late = self._waiting.count("\n")
            self._holding.add(self)
            if self.filename not in self._failing:
                self._failing.add(self.filename)
                logger.warning(
                    "%s cannot be written (%s): records are kept in memory and written as soon as it can be; "
                    "`df -h %s` shows what is full, free some space there",
                    self.filename, e.strerror or e, folder,
                )
            return False
        if self._late:
            logger.warning("%s can be written again: %d records were written late", self.filename, self._late)
        self._failing.discard(self.filename)
        self._holding.discard(self)
        self._waiting, self._late, self._dirty = "", 0, not sync
        if sync:
            self._synced = time.monotonic()
        return True

    def flush(self):
        """Writes what is waiting and has the disk keep it.

        Raises
        ------
        OSError
            If it cannot be written; the records go on waiting.
        """
        with Held():
            written = self._write(True)
        if not written:
            raise OSError(f"{self._late} records could not be written to {self.filename}; they are kept in memory")

    def close(self):
        """Writes what is waiting and has the disk keep it; called at the end of the process.

        If the file cannot be written even now, the records go to a file in the directory for temporary files.
        """
        with Held():
            self._close()

    def _close(self):
        if self._process != os.getpid() or self._write(True):  # a forked child leaves them to its parent
            return
        text, n = self._waiting, self._late
        try:
            fd, rest = tempfile.mkstemp(".json", os.path.basename(self.filename) + ".rest-")
            os.close(fd)
            append_text(rest, text, True)
        except OSError as e:
            logger.error("%d records could not be written to %s and are lost, for %s", n, self.filename, e)
            return
        logger.error(
            "%d records could not be written to %s; they are in %s (`cat %s >> %s` when there is room)",
            n, self.filename, rest, rest, self.filename,
        )
        self._waiting, self._late = "", 0
        self._holding.discard(self)


# ---- keys ----


def _scalars(x):
    for e in x:
        if isinstance(e, (list, tuple)):
            yield from _scalars(e)
        else:
            yield e


@functools.lru_cache(maxsize=4096)  # a log repeats the keys of its tasks
def decode_workload_key(key):
    """(hash or name, tuple of all scalars) of a key; nested and flat lists of shapes give the same tuple. What is no
    JSON list that begins with a name and holds scalars is a name by itself: (key, None)."""
    try:
        parts = check.json_of("workload key", key)
    except (TypeError, ValueError):
        return key, None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        return key, None
    scalars = tuple(_scalars(parts[1:]))
    return (key, None) if any(isinstance(s, dict) for s in scalars) else (parts[0], scalars)


_HASH = re.compile("[0-9a-f]{32}")  # the name of a workload that is no registered function


def calc_workload_dis_factor(wanted, recorded):
    """How much larger the wanted workload is than a recorded one of the same computation; infinite if unrelated.

    Both are pairs as :func:`decode_workload_key` gives them. The factor is 1 for equal workloads.
    """
    inf = float("inf")
    (name, args), (name2, args2) = wanted, recorded
    if name != name2 or (args is None) != (args2 is None):
        return inf
    if args is None:
        return 1.0
    if len(args) != len(args2):
        return inf
    factor = 1.0
    for w, r in zip(args, args2):
        if isinstance(w, int) and not isinstance(w, bool) and isinstance(r, int) and w != 0 and r != 0:
            if w % r or w // r < 1:
                return inf
            factor *= w / r
        elif w != r:
            return inf
    return factor


def size_factor(wanted, recorded):
    """The one factor, a Fraction, by which all sizes differ in which two workloads differ, as those of a network in two batch sizes do;
    None if they are equal or differ otherwise. Both are pairs as :func:`decode_workload_key` gives them. Hashes do not count: sizes are a
    part of what most are made of."""
    (name, args), (name2, args2) = wanted, recorded
    if name != name2 and not (_HASH.fullmatch(name) and _HASH.fullmatch(name2)):
        return None
    if args is None or args2 is None or len(args) != len(args2):
        return None
    pairs = {(w, r) for w, r in zip(args, args2) if w != r}
    if not all(type(x) is int and x > 0 for pair in pairs for x in pair):
        return None
    factors = {Fraction(w, r) for w, r in pairs}
    return factors.pop() if len(factors) == 1 else None


def load_best_record(filename, workload_key=None, target=None, include_compatible=False, math=None):
    """(input, result) of the fastest record without error, or (None, None).

    Parameters
    ----------
    filename : str
    workload_key : str, optional
        Only records of this workload.
    target : Target or str, optional
        Only records of this kind of target.
    include_compatible : bool
        Also records of the same computation whose sizes divide the wanted ones; their time is scaled up.
    math : str, optional
        Only records that fit this math mode of a task; by default what the PassContext allows.

    Returns
    -------
    input : MeasureInput or None
    result : MeasureResult or None

    Raises
    ------
    ValueError
        If the file holds something, but not a single record.
    """
    kind = None
    if target is not None:
        kind = target.split(None, 1)[0] if isinstance(target, str) else getattr(target.kind, "name", str(target.kind))
    wanted = decode_workload_key(workload_key) if workload_key else None
    reader = RecordReader(filename)
    if not reader.is_there():
        return None, None
    log, found = _core.TuneLog(filename), []
    tell_faults(log, filename)
    allowed = math_mode(PassContext.current().config) if math is None else math
    for key, text, _, mode, _, _, (quick, cost), at in log.groups:
        if (kind is not None and text.split(None, 1)[:1] != [kind]) or not mode_fits(mode or "strict", allowed):
            continue
        factor = 1.0 if wanted is None else calc_workload_dis_factor(wanted, decode_workload_key(key))
        usable = factor == 1 or (include_compatible and factor < float("inf"))
        if usable and (quick, cost * factor) < NOTHING:
            found.append((quick, cost * factor, at))  # full results before quick ones
    return next(reader.at([min(found)[2]])) if found else (None, None)


# ---- whole logs ----
KEY, TARGET, STEPS, COSTS, ERROR, TIME, VERSION = 0, 1, 6, 7, 8, 10, 11  # places in the tuple that the engine's parser gives
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)  # what freeing space mends


def text_of(fields):
    """The line of a log, in the current format, of a parsed record."""
    return dump_record_to_string(*_pair(fields))


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


def records_of(names):
    """Parsed records of logs, one tuple each. Raises what `missing_log` gives where there is none."""
    for name in [names] if isinstance(names, (str, os.PathLike)) else names:
        if no_log(name):
            raise missing_log(name)
        yield from RecordReader(name)._fields()


def by_task(names):
    """Records grouped by (workload, target text) in order of appearance."""
    groups = {}
    for f in records_of(names):
        groups.setdefault((decode_workload_key(f[KEY]), f[TARGET]), []).append(f)
    return groups


def _target_keys(text):
    try:
        return list(Target(text).keys)
    except ValueError:  # of another package, perhaps: its kind
        return text.split()[:1] or [""]


def distill_record_file(in_file, out_file):
    """Keeps, for every target key and workload, the fastest record of ``in_file`` and of ``out_file`` if it exists."""
    kept, order = {}, []
    for fields in records_of([in_file] + ([out_file] if os.path.isfile(out_file) else [])):
        if rank_of_fields(fields) == NOTHING:
            continue
        workload, args = decode_workload_key(fields[KEY])
        for key in _target_keys(fields[TARGET]):
            slot = (key, workload, args, read_marks(fields[VERSION]).get("math"))
            if slot not in kept:
                order.append(slot)
            if slot not in kept or rank_of_fields(fields) < rank_of_fields(kept[slot]):
                kept[slot] = fields
    rank = {}
    for key, workload, *_ in order:  # groups in order of first appearance
        rank.setdefault(key, len(rank))
        rank.setdefault((key, workload), len(rank))
    seen, lines = set(), []
    for slot in sorted(order, key=lambda s: (rank[s[0]], rank[s[:2]])):
        identity = tuple(kept[slot][i] for i in (KEY, TARGET, STEPS))
        if identity not in seen:
            seen.add(identity)
            lines.append(text_of(kept[slot]))
    write_whole(out_file, lines)
    logger.info("%d records kept in %s", len(lines), out_file)


if __name__ == "__main__":
    from .log_tools import main

    raise SystemExit(main())
