"""Features of candidates: 164 numbers for each buffer that a lowered program stores to.

A state is described by a matrix of float32 with one row per stored buffer; ``get_per_store_feature_names`` names the
columns. Sizes and counts pass through ``slog(x) = log2(x + 1)``, flags stay 0 or 1. A state that cannot be lowered, or
that breaks a limit of its GPU, is one row of zeros.
"""

import json
import os
import pathlib
import struct
import zlib

import numpy as np

from nestsmith import _core

from ..states import core_state
from ..tir.stmt import engine_form
from .cost import FAILED, seconds_of
from .hardware import cores
from .measure_record import RecordReader
from .search_task import recover_measure_input

__all__ = ["DEFAULT_MAX_N_BUFS", "get_per_store_features_from_states", "get_per_store_features_from_file",
           "get_per_store_features_from_measure_pairs", "get_per_store_feature_names", "pack_feature", "unpack_feature",
           "FeatureFile"]

DEFAULT_MAX_N_BUFS = 5
N_ENTRIES = 164
REFERENCE, REPAIRED = 1, 2  # rule sets

_OPS = "mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc"
_POSITIONS = ("kPosNone", "kPosInnerSpatial", "kPosMiddleSpatial", "kPosOuterSpatial", "kPosInnerReduce",
              "kPosMiddleReduce", "kPosOuterReduce", "kPosMixed")
_SLOT = ("acc_type.kRead", "acc_type.kWrite", "acc_type.kReadWrite", "bytes", "unique_bytes", "lines", "unique_lines",
         "reuse_type.kLoopMultipleRead", "reuse_type.kSerialMultipleReadWrite", "reuse_type.kNoReuse", "reuse_dis_iter",
         "reuse_dis_bytes", "reuse_ct", "bytes_d_reuse_ct", "unique_bytes_d_reuse_ct", "lines_d_reuse_ct",
         "unique_lines_d_reuse_ct", "stride")


def _five(max_n_bufs):
    if max_n_bufs not in (None, DEFAULT_MAX_N_BUFS):
        raise ValueError(f"max_n_bufs={max_n_bufs}: a row describes exactly {DEFAULT_MAX_N_BUFS} buffers; leave it out")


def get_per_store_feature_names(max_n_bufs=None):
    """Names of the 164 entries of a row, in order."""
    _five(max_n_bufs)
    names = [f"{t}_{o}" for t in ("float", "int") for o in _OPS] + ["bool_op", "select_op"]
    for p in ("vec", "unroll", "parallel"):
        names += [f"{p}_{k}" for k in ("num", "prod", "len")] + [f"{p}_type.{k}" for k in _POSITIONS]
    names += ["is_gpu"] + [f"{t}_{a}_len" for t in ("blockIdx", "threadIdx") for a in "xyz"] + ["vthread_len"]
    names += [f"B{b}.{k}" for b in range(DEFAULT_MAX_N_BUFS) for k in _SLOT]
    names += [f"arith_intensity_curve_{i}" for i in range(10)]
    return names + ["alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod", "outer_prod", "num_loops", "auto_unroll_max_step"]


def _unpack(rows, first):
    out = np.empty(len(first) - 1, dtype=object)
    for i in range(len(out)):
        out[i] = rows[first[i] : first[i + 1]] if first[i + 1] > first[i] else np.zeros((1, N_ENTRIES), np.float32)
    return out


def get_per_store_features_from_states(states, task, max_n_bufs=None, rules=REFERENCE, log=True):
    """Features of states of one task.

    Parameters
    ----------
    states : list of State
    task : SearchTask
    max_n_bufs : int, optional
        5 or None.
    rules : int
        1 reproduces the published numbers, oddities included; 2 repairs them and is what the built-in models use.
    log : bool
        False gives untransformed values.

    Returns
    -------
    ndarray of object
        One float32 array [stored buffers, 164] per state; one row of zeros for a state that cannot be lowered.
    """
    _five(max_n_bufs)
    rows, first = _core.feature_batch([core_state(s) for s in states], task.engine_target(), rules, log, True, cores())
    return _unpack(rows, first)


def named_features_from_primfunc(func, cache_line_bytes=64, max_n_bufs=None, log_scale=False):
    """As `features_from_primfunc`, by the names of `get_per_store_feature_names`."""
    return dict(zip(get_per_store_feature_names(max_n_bufs), features_from_primfunc(func, cache_line_bytes, max_n_bufs, log_scale).T))


def features_from_primfunc(func, cache_line_bytes=64, max_n_bufs=None, log_scale=False):
    """Features of loops by hand, or of a schedule (``lower(s, args)["main"]``).

    Parameters
    ----------
    func : tir.PrimFunc
    cache_line_bytes : int
        Of the machine.
    max_n_bufs : int, optional
        5 or None.
    log_scale : bool
        Whether values are transformed.

    Returns
    -------
    ndarray
        One float32 row of 164 entries for each buffer that is stored. Raises ValueError if the function writes none.
    """
    _five(max_n_bufs)
    buffers = tuple(func.memory.get(b, b).number for b in func.buffer_map.values())
    rows = np.frombuffer(_core.stmt_features(engine_form(func.body), buffers, cache_line_bytes, REFERENCE, log_scale), np.float32)
    if not rows.size:
        raise ValueError("the function stores nothing")
    return rows.reshape(-1, N_ENTRIES).copy()


def _labels(inputs, results):
    """Throughput of each record relative to the best of its task, and task numbers in order of appearance."""
    number, task_ids, costs = {}, [], []
    for inp, res in zip(inputs, results):
        task_ids.append(number.setdefault((inp.task.workload_key, str(inp.task.target)), len(number)))
        costs.append(seconds_of(res))
    task_ids, costs = np.array(task_ids, np.int32), np.array(costs)
    best = np.full(len(number), np.inf)
    np.minimum.at(best, task_ids, costs)
    return (best[task_ids] / costs).astype(np.float32), task_ids


def get_per_store_features_from_measure_pairs(inputs, results, skip_first_n_feature_extraction=0, max_n_bufs=None, rules=REFERENCE, log=True):
    """Features, labels and task numbers of measured candidates.

    The features of the first `skip_first_n_feature_extraction` records are not extracted (None in the result).
    Returns (ndarray of object, float32 ndarray of throughputs relative to each task's best, int32 ndarray of task
    numbers).
    """
    _five(max_n_bufs)
    inputs, results = list(inputs), list(results)
    if len(inputs) != len(results):
        raise ValueError(f"{len(inputs)} inputs but {len(results)} results")
    by_task = {}
    for i, inp in enumerate(inputs[skip_first_n_feature_extraction:], skip_first_n_feature_extraction):
        by_task.setdefault((inp.task.workload_key, str(inp.task.target)), []).append(i)
    features = np.empty(len(inputs), dtype=object)
    for numbers in by_task.values():
        task = recover_measure_input(inputs[numbers[0]]).task
        states, at = [], []
        for i in numbers:
            features[i] = np.zeros((1, N_ENTRIES), np.float32)
            state = core_state(inputs[i].state)
            try:
                states.append(state if isinstance(state, _core.State) else _core.State(task.compute_dag, state.steps()))
                at.append(i)
            except (ValueError, RuntimeError):  # steps that do not fit the task: failed
                continue
        for i, f in zip(at, get_per_store_features_from_states(states, task, max_n_bufs, rules, log)):
            features[i] = f
    return features, *_labels(inputs, results)


def get_per_store_features_from_file(filename, max_lines, max_n_bufs=None, rules=REFERENCE, log=True):
    """The same for the first `max_lines` records (-1: all) of a log whose workloads are known in this process."""
    inputs, results = RecordReader(str(filename)).read_lines(max_lines if max_lines is not None and max_lines > 0 else None)
    return get_per_store_features_from_measure_pairs(inputs, results, 0, max_n_bufs, rules, log)


def pack_feature(features, normalized_throughputs=(), task_ids=()):
    """The byte block in which TVM hands features from its engine to its scripts.

    Parameters
    ----------
    features : sequence of float32 arrays [n, 164]
        Rows of each state; a single row of zeros stands for a state that could not be lowered.
    normalized_throughputs, task_ids : sequences, optional
        One number per state, or none.

    Returns
    -------
    bytes
        int32 number of states n; n + 2 int32 sizes; for each state its number of rows as a float32, then its rows;
        float32 throughputs; int32 task numbers.
    """
    parts = []
    for i, rows in enumerate(features):
        rows = np.ascontiguousarray(rows, "<f4")
        if rows.ndim != 2 or rows.shape[1] != N_ENTRIES:
            raise ValueError(f"features[{i}] has shape {rows.shape}; expected [n, {N_ENTRIES}]")
        parts.append(np.concatenate([[np.float32(len(rows))], rows.ravel()]).astype("<f4") if rows.any() else b"")
    labels, tasks = np.asarray(normalized_throughputs, "<f4").ravel(), np.asarray(task_ids, "<i4").ravel()
    for name, got in (("normalized_throughputs", labels), ("task_ids", tasks)):
        if len(got) not in (0, len(parts)):
            raise ValueError(f"{name}: {len(got)} numbers for {len(parts)} states")
    sizes = np.array([len(parts), *(len(x) for x in parts), len(labels), len(tasks)], "<i4")
    return b"".join([sizes.tobytes(), *(bytes(x) for x in parts), labels.tobytes(), tasks.tobytes()])


def unpack_feature(byte_arr):
    """Reads what `pack_feature` (or TVM) wrote.

    Returns
    -------
    (ndarray of object, float32 ndarray, int32 ndarray)
        Rows of each state, throughputs, task numbers; the last two are empty if only states were packed.

    Raises
    ------
    ValueError
        If the block is cut off or its sizes do not fit together.
    """
    raw = bytes(byte_arr)
    n = struct.unpack_from("<i", raw)[0] if len(raw) >= 4 else -1
    if n < 0 or len(raw) < 4 * (n + 3):
        raise ValueError(f"a feature block of {len(raw)} bytes is cut off in its sizes")
    sizes = np.frombuffer(raw, "<i4", n + 2, 4)
    if (sizes < 0).any() or 4 * (n + 3 + int(sizes.sum(dtype=np.int64))) != len(raw):
        raise ValueError(f"a feature block of {len(raw)} bytes does not fit its sizes; it is cut off or damaged")
    at, out = 4 * (n + 3), np.empty(n, dtype=object)
    for i, size in enumerate(sizes[:n]):
        data = np.frombuffer(raw, "<f4", int(size), at)
        at += 4 * int(size)
        rows = int(data[0]) if len(data) else 0
        if len(data) and (rows < 1 or rows * N_ENTRIES != len(data) - 1):
            raise ValueError(f"state {i}: {len(data) - 1} numbers are not {rows} rows of {N_ENTRIES}")
        out[i] = data[1:].reshape(rows, N_ENTRIES).copy() if rows else np.zeros((1, N_ENTRIES), np.float32)
    labels = np.frombuffer(raw, "<f4", int(sizes[n]), at).copy()
    return out, labels, np.frombuffer(raw, "<i4", int(sizes[n + 1]), at + 4 * int(sizes[n])).copy()


class FeatureFile:
    """Features and times of measured candidates in a file to which records are appended.

    Little-endian: a header ``"AFD1"``, u32 version, u32 entries of a row, u32 entries of a state vector, u32 rules, u32
    bytes of names, names in entry order separated by newlines; then blocks: 4-byte tag, u32 bytes, payload, u32 CRC-32
    of tag, length and payload. A ``TASK`` block holds a u32 task number and JSON text; a ``RECS`` block u32 count and
    for each record u32 task, u32 status, u16 rows, u16 repeats, f32 seconds of each repeat, the state vector, the rows,
    u64 hash of the steps. Unknown tags are skipped.

    Parameters
    ----------
    path : str
        Created with a header if it does not exist.
    rules : int
        Rule set of the rows; a file holds one.
    state_entries : int
        Length of the vector that describes a whole state (0: none).
    """

    OK, FAILED_LOWERING, FAILED_BUILD, FAILED_RUN = range(4)

    def __init__(self, path, rules=REPAIRED, state_entries=0):
        self.path, self.rules, self.state_entries = str(path), int(rules), int(state_entries)
        if os.path.exists(self.path):
            with open(self.path, "rb") as f:
                self._header(f.read(24))
        else:
            names = "\n".join(get_per_store_feature_names()).encode()
            head = struct.pack("<5I", 1, N_ENTRIES, self.state_entries, self.rules, len(names))
            pathlib.Path(self.path).write_bytes(b"AFD1" + head + names)

    def _header(self, raw):
        if len(raw) < 24 or raw[:4] != b"AFD1":
            raise ValueError(f"{self.path} is not a feature file")
        version, entries, self.state_entries, rules, names = struct.unpack("<5I", raw[4:24])
        if version != 1 or entries != N_ENTRIES:
            raise ValueError(f"{self.path}: version {version} with {entries} entries; this release reads version 1 "
                             f"with {N_ENTRIES}")
        if rules != self.rules:
            raise ValueError(f"{self.path} holds rows of rules {rules}, not {self.rules}; use another file")
        return 24 + names

    def _append(self, tag, payload):
        block = tag + struct.pack("<I", len(payload)) + payload
        with open(self.path, "ab") as f:
            f.write(block + struct.pack("<I", zlib.crc32(block)))

    def add_task(self, number, workload_key, target, flops=0.0):
        """Describes task `number`."""
        text = json.dumps({"workload_key": workload_key, "target": str(target), "flops": float(flops)})
        self._append(b"TASK", struct.pack("<I", number) + text.encode())

    def add(self, task, rows, seconds, status=None, state_vectors=None, step_hashes=None):
        """Appends one block of records.

        Parameters
        ----------
        task : sequence of int
        rows : sequence of float32 arrays [n, 164]
            A single row of zeros, or no row: the state could not be lowered.
        seconds : sequence of sequences of float
            Repeats of each record.
        status : sequence of int, optional
        state_vectors : sequence of arrays, optional
        step_hashes : sequence of int, optional
        """
        out = [struct.pack("<I", len(rows))]
        for i, r in enumerate(rows):
            r = np.ascontiguousarray(r, np.float32).reshape(-1, N_ENTRIES)
            if len(r) == 1 and not r.any():
                r = r[:0]
            times = np.asarray(seconds[i], np.float32).reshape(-1)
            if status is not None:
                st = int(status[i])
            elif len(r) == 0:
                st = self.FAILED_LOWERING
            else:
                st = self.FAILED_RUN if len(times) == 0 or times.min() >= FAILED else self.OK
            vec = np.asarray(np.zeros(self.state_entries) if state_vectors is None else state_vectors[i], np.float32)
            if vec.shape != (self.state_entries,):
                raise ValueError(f"state_vectors[{i}] has shape {vec.shape}; the file stores {self.state_entries} "
                                 "entries")
            head = struct.pack("<2I2H", int(task[i]), st, len(r), len(times))
            seal = struct.pack("<Q", 0 if step_hashes is None else int(step_hashes[i]))
            out += [head, times.tobytes(), vec.tobytes(), r.tobytes(), seal]
        self._append(b"RECS", b"".join(out))

    def read(self):
        """All records as a dict of arrays: rows, first (of each record in rows), segments (rows of each record), costs
        (mean seconds, 1e10 failed), task, status, hash, state; and tasks, a dict of descriptions by number.

        Raises ValueError at the first block that is cut off or damaged."""
        raw = pathlib.Path(self.path).read_bytes()
        at, tasks = self._header(raw[:24]), {}
        rows, first, costs, task, status, hashes, vecs = [], [0], [], [], [], [], []
        while at < len(raw):
            size = struct.unpack_from("<I", raw, at + 4)[0] if at + 8 <= len(raw) else 0
            end = at + 8 + size
            if end + 4 > len(raw) or struct.unpack_from("<I", raw, end)[0] != zlib.crc32(raw[at:end]):
                raise ValueError(f"{self.path}: the block at byte {at} is cut off or damaged (CRC)")
            tag, p = raw[at : at + 4], at + 8
            if tag == b"TASK":
                tasks[struct.unpack_from("<I", raw, p)[0]] = json.loads(raw[p + 4 : end])
            elif tag == b"RECS":
                count, p = struct.unpack_from("<I", raw, p)[0], p + 4
                for _ in range(count):
                    t, st, n, k = struct.unpack_from("<2I2H", raw, p)
                    times = np.frombuffer(raw, "<f4", k, p + 12)
                    p += 12 + 4 * k
                    vecs.append(np.frombuffer(raw, "<f4", self.state_entries, p))
                    p += 4 * self.state_entries
                    rows.append(np.frombuffer(raw, "<f4", n * N_ENTRIES, p).reshape(n, N_ENTRIES))
                    p += 4 * n * N_ENTRIES
                    hashes.append(struct.unpack_from("<Q", raw, p)[0])
                    p += 8
                    first.append(first[-1] + n)
                    task.append(t)
                    status.append(st)
                    costs.append(float(times.mean(dtype=np.float64)) if st == self.OK and k else FAILED)
            at = end + 4
        return {"rows": np.concatenate(rows) if rows else np.zeros((0, N_ENTRIES), np.float32),
                "first": np.array(first, np.int32), "segments": np.diff(first).astype(np.int32),
                "costs": np.array(costs), "task": np.array(task, np.int32), "status": np.array(status, np.int32),
                "hash": np.array(hashes, np.uint64),
                "state": np.array(vecs, np.float32).reshape(len(task), self.state_entries), "tasks": tasks}

    def export_text(self, path):
        """Writes one JSON object per record to a text file, for looking at.

        Keys are task, status, seconds, hash (hexadecimal), state (entries that are not 0, by number) and rows, a list of
        objects from names of entries to values; entries that are 0 are left out.
        """
        got, names = self.read(), get_per_store_feature_names()
        with open(path, "w") as out:
            for i, (a, b) in enumerate(zip(got["first"], got["first"][1:])):
                rows = [{names[k]: round(float(r[k]), 6) for k in np.flatnonzero(r)} for r in got["rows"][a:b]]
                state = {str(k): round(float(got["state"][i][k]), 6) for k in np.flatnonzero(got["state"][i])}
                one = {"task": int(got["task"][i]), "status": int(got["status"][i]), "seconds": float(got["costs"][i]),
                       "hash": f"{int(got['hash'][i]):016x}", "state": state, "rows": rows}  # fmt: skip
                out.write(json.dumps(one) + "\n")
