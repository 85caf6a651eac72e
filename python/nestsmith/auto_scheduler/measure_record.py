"""Tuning logs: one JSON line per measured program.

Logs of all releases of the established format (v0.2 to v0.6) are read; v0.6 is written.

``python -m nestsmith.auto_scheduler.measure_record --mode distill -i in.json`` keeps the best record of every workload;
the other modes are in `log_tools`.
"""

import atexit
import contextlib
import json
import logging
import os
import tempfile
import time
import weakref

from .. import _core
from ..numerics import math_mode, mode_fits
from ..relay.passes import PassContext
from ..states import handle_of
from ..target import Target
from .cost import FAILED, NOTHING, rank
from .hardware import FIELDS, HardwareParams
from .log_files import CUT, append_text, missing_log, no_log, parsed_lines, tell_read, write_whole
from .marks import read_marks, write_marks
from .measure import MeasureInput, MeasureResult
from .signals import Held
from .workload_keys import calc_workload_dis_factor, decode_workload_key

__all__ = ["RecordReader", "RecordToFile", "load_records", "save_records", "load_best_record",
           "load_record_from_string", "dump_record_to_string", "distill_record_file"]

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

    transform_steps = property(lambda self: [tuple(s) for s in json.loads(self._text)], doc="The steps as tuples.")

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

    target_host = property(lambda self: self.host_text or None, doc="Text of the host target, or None.")

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
    return _core.record_text(key, target, hw, host, layout, inputs, _steps_of(inp.state), [float(c) for c in res.costs],
                             int(res.error_no), float(res.all_cost), int(res.timestamp),
                             write_marks(res, getattr(inp.task, "math", "strict")))


def load_record_from_string(record):
    """(MeasureInput, MeasureResult) of one line of a log. Raises ValueError that names the broken place."""
    return _pair(_core.record_parse(record))


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
    broken, first, cut, impossible = log.faults
    good = sum(g[4] + g[5] for g in log.groups)
    said = [CUT] * cut + [f"{impossible} count as failed: their times are none that a run can have"] * (impossible > 0)
    tell_read(where, good, broken, " ".join(first.split()), said, logger.warning)


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
                logger.warning("%s cannot be written (%s): records are kept in memory and written as soon as it can "
                               "be; `df -h %s` shows what is full, free some space there", self.filename,
                               e.strerror or e, folder)
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
        logger.error("%d records could not be written to %s; they are in %s (`cat %s >> %s` when there is room)", n,
                     self.filename, rest, rest, self.filename)
        self._waiting, self._late = "", 0
        self._holding.discard(self)


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


def text_of(fields):
    """The line of a log, in the current format, of a parsed record."""
    return dump_record_to_string(*_pair(fields))


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


def fallen(records, task_of):
    """Of records (tuples of the engine's parser) those at which their task's best time fell: (number from 1, task, seconds, record).
    The last one of a task is its best as `cost.rank` says: quick times count only where a task has no others, for they may be of a
    disturbed device."""
    ranked = [(n, task_of(f), rank_of_fields(f), f) for n, f in enumerate(records, 1)]
    full = {task for _, task, rank, _ in ranked if not rank[0]}
    lowest = {}
    for n, task, (quick, seconds), f in ranked:
        if seconds < lowest.get(task, FAILED) and not (quick and task in full):
            lowest[task] = seconds
            yield n, task, seconds, f


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
            slot = key, workload, args, read_marks(fields[VERSION]).get("math")
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
