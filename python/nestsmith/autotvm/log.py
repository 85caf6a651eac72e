"""Tuning logs of templates: one JSON line per measured configuration.

Logs of TVM 0.8 to 0.14 are read; what is written they read, too. A log may come from anybody: a line that is no record is
skipped, and one warning tells which lines those were and what is wrong with the first.
"""

import functools
import json
import logging
import math
import os
import re

from .. import check
from .._version import __version__
from ..auto_scheduler.cost import seconds_of
from ..auto_scheduler.log_files import missing_log, no_log, parsed_lines
from ..error import TVMValueError
from ..target import Target
from .measure.measure import MeasureInput, MeasureResult
from .task.space import ConfigEntity
from .task.task import Task

__all__ = ["AUTOTVM_LOG_VERSION", "as_json", "decode", "encode", "load_from_buffer", "load_from_file", "measure_str_key"]

AUTOTVM_LOG_VERSION = 0.2
FAILED = 1e9  # what stands for the costs of a failed measurement
_INPUT = ("target", "task", "arguments", "keyword arguments")

logger = logging.getLogger("autotvm")


def measure_str_key(inp, include_config=True):
    """A text that is the same for equal inputs: of the target, the task and its arguments, and the configuration."""
    config = str(inp.config) if include_config else ""
    return f"{inp.target}{inp.task.name}{inp.task.args}{inp.task.kwargs}{config}"


def _json_only(protocol):
    if protocol != "json":
        raise TVMValueError(f"protocol is {protocol!r}; only 'json' is possible: other logs can run code when they are read")


def _plain(x):
    if hasattr(x, "tolist"):
        return x.tolist()
    raise TypeError(f"a record cannot hold {x!r}, a {type(x).__name__}; it takes numbers, texts, None and lists of these")


def as_json(value):
    """A part of a record as text; NumPy's numbers and arrays become JSON's. Raises TypeError for what JSON does not have."""
    return json.dumps(value, default=_plain)


def encode(inp, result, protocol="json"):
    """The line of a log, without its end, for one measurement.

    Parameters
    ----------
    inp : MeasureInput
    result : MeasureResult
    protocol : str
        ``json``. Raises TVMValueError for anything else.

    Returns
    -------
    str
        Raises TypeError for values of knobs that JSON does not have.
    """
    _json_only(protocol)
    costs = list(result.costs) if result.error_no == 0 else [FAILED]
    record = {
        "input": [str(inp.target), inp.task.name, inp.task.args, inp.task.kwargs],
        "config": inp.config.to_json_dict(),
        "result": [costs, int(result.error_no), result.all_cost, result.timestamp],
        "version": AUTOTVM_LOG_VERSION,
        "tvm_version": __version__,
    }
    if getattr(result, "extra", None):
        record["extra"] = result.extra
    return as_json(record)


@functools.lru_cache(maxsize=256)  # a log has few
def _target(text):
    """The target of a record. Options that this release does not know, of older and newer ones, are left out."""
    text = re.sub(r"(?<!\S)-target=", "-mtriple=", text)
    try:
        return Target(text)
    except ValueError:
        known = re.findall(r"^\S+|(?<!\S)-(?:keys|device|model|arch|mcpu|mtriple|mattr|max_num_threads|thread_warp_size)=\S+", text)
        return Target(" ".join(known))


def _arguments(x):
    """The arguments of a task as they were before JSON: lists were tuples."""
    if isinstance(x, dict):
        raise ValueError("input: the arguments hold an object; they are numbers, texts, null and lists of these")
    return tuple(_arguments(e) for e in x) if isinstance(x, list) else x


def _number(value, what):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{what} is {repr(value)[:80]}; it must be a number")
    return value


def _result(fields, extra):
    if not isinstance(fields, list) or len(fields) != 4:
        raise ValueError("result must be [costs, error number, seconds, time stamp]")
    costs, error_no, all_cost, timestamp = fields
    if not isinstance(costs, list) or not costs:
        raise ValueError("result: costs must be a list of seconds")
    costs = tuple(_number(c, "result: a cost") for c in costs)
    if not isinstance(error_no, int) or isinstance(error_no, bool) or error_no < 0:
        raise ValueError(f"result: the error number is {repr(error_no)[:80]}")
    if error_no == 0 and min(costs) <= 0:
        raise ValueError(f"result: a cost is {min(costs)}; it must be positive")
    times = _number(all_cost, "result: all_cost"), _number(timestamp, "result: the time stamp")
    return MeasureResult(costs, error_no, *times, extra if isinstance(extra, dict) else None)


def decode(row, protocol="json"):
    """The measurement of a line of a log.

    Parameters
    ----------
    row : str
    protocol : str
        ``json``. Raises TVMValueError for anything else.

    Returns
    -------
    (MeasureInput, MeasureResult) or None
        None for a record of version 0.1, after one warning. The task's space is not built; ``config.cost`` is the mean cost.

    Raises
    ------
    ValueError
        If it is no record; it says what is wrong.
    """
    _json_only(protocol)
    record = check.json_of("record", row)
    if not isinstance(record, dict):
        raise ValueError("a record is a JSON object")
    if "v" in record and "input" not in record:
        _say_old()
        return None
    for key in ("input", "config", "result"):
        if key not in record:
            raise ValueError(f"the record has no {key!r}")
    given = record["input"]
    if not isinstance(given, list) or len(given) != 4:
        raise ValueError(f"input must be [{', '.join(_INPUT)}]")
    target, name, args, kwargs = given
    for value, what in ((target, "target"), (name, "task")):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"input: the {what} is {repr(value)[:80]}; it must be a text")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ValueError("input: the arguments must be a list, the keyword arguments an object")
    result = _result(record["result"], record.get("extra"))
    config = ConfigEntity.from_json_dict(record["config"])
    config.cost = seconds_of(result)
    try:
        task = Task(name, _arguments(args))
    except RecursionError:
        raise ValueError("input: the arguments are nested too deeply") from None
    task.target = _target(target)
    return MeasureInput(task.target, task, config), result


@functools.cache
def _say_old():
    logger.warning("records of version 0.1 are not read any more; tune again, or convert them with TVM 0.6")


def load_from_buffer(file):
    """The measurements of an open text file, lazily.

    Parameters
    ----------
    file : text file

    Yields
    ------
    (MeasureInput, MeasureResult)

    Raises
    ------
    ValueError
        At its end, if the file holds something, but not a single record.
    """
    for _, pair in parsed_lines(str(getattr(file, "name", "the given text")), file, decode, logger.warning):
        yield pair


def load_from_file(filepath):
    """The measurements of a log, lazily.

    Parameters
    ----------
    filepath : str or pathlib.Path

    Yields
    ------
    (MeasureInput, MeasureResult)

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file (`missing_log`).
    ValueError
        At its end, if it holds something, but not a single record.
    """
    path = os.fspath(filepath)
    if no_log(path):
        raise missing_log(path)
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        yield from load_from_buffer(f)
