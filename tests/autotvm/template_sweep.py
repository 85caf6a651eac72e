"""Every template with random configurations at shapes of real networks, each in a process that may hang or crash. It resumes:

    python tests/autotvm/template_sweep.py [--ledger build/template-sweep.jsonl] [--only mali] [--jobs 2] [--target cuda] [--minutes 60]
        [--first 12]                                                       # without the first twelve configurations of each shape
    python tests/autotvm/template_sweep.py --report --out docs/results     # runs nothing: the table of a ledger

A ledger has a line per configuration. One that was right, or took a compiler longer than it has now, is not run again as long as
its template makes the same program for it. The first configurations of all shapes come before the second ones. Without its device
a target is compiled for only.

Loops that a template unrolls make programs of up to a megabyte, on which a compiler's optimiser spends minutes and the program
itself milliseconds: PoCL compiles long ones, and those in which it is asked to unroll, without it and without that wish.
"""

import argparse
import collections
import contextlib
import datetime
import functools
import hashlib
import json
import multiprocessing
import os
import pathlib
import queue
import resource
import signal
import sys
import threading
import time

if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).parents[k] / p) for k, p in ((2, "python"), (1, ""))]

import numpy as np
import template_cases as t

import nestsmith as ns
from nestsmith import _core
from nestsmith.driver import compile_source, engine_of
from nestsmith.runtime.module import OperatorModule
from nestsmith.target import Target

COUNT = 20  # configurations of a shape
CHUNK = 2  # of them in one job
CORES = len(os.sched_getaffinity(0))
DRAWS = 1000  # at most, to find them
JOBS_OF_A_PROCESS = 50
COMPILE_SECONDS, RUN_SECONDS = 90, 400  # of processor time; by the clock
OPTIMISED = 12000  # characters of a program that PoCL optimises
UNROLL = "#pragma unroll"
STACK = 64 << 20  # bytes of a thread
# what takes a compiler too long, or needs more than the device has, is no wrong answer
LIMITS = "cannot run on this GPU", "longer than", "too large", "allowed are", "resources", "timed out", "out of memory", "in a group; the device"
PLAIN = "right, not optimised"
GOOD = "right", PLAIN, "compiled"

Pair = collections.namedtuple("Pair", "name shape target compiled_only")


def pairs(only="", target=None, compiled_only=False):
    """Templates with their shapes of real networks, for the templates' own targets or for those of `target`'s kind, as text."""
    return [
        Pair(n, s, target or str(c.target), compiled_only)
        for n, c in t.CASES.items() for s in c.real if only in n and (not target or c.target is t.GPU)
    ]  # fmt: skip


def _settled(outcome):
    return outcome in GOOD or f"compiling took longer than {COMPILE_SECONDS} s" in outcome


class Ledger:
    """What is known of programs by a digest, in a file if there is one; lines that were cut short are skipped."""

    def __init__(self, path=None):
        self.path, self.known, self._lock = path, {}, threading.Lock()
        self.outcomes = collections.defaultdict(dict)  # by (template, shape), then by the configuration's number
        if path and os.path.exists(path):
            with open(path) as f:
                for line in f:
                    with contextlib.suppress(ValueError, KeyError):
                        entry = json.loads(line)
                        self.known[entry["key"]] = entry["outcome"]
                        self.outcomes[entry["name"], tuple(entry["shape"])][entry["at"]] = entry["outcome"]

    def add(self, pair, at, key, outcome, seconds):
        with self._lock:
            self.known[key] = self.outcomes[pair.name, tuple(pair.shape)][at] = outcome
            if self.path:
                with open(self.path, "a") as f:
                    entry = {"name": pair.name, "shape": pair.shape, "at": at, "key": key, "outcome": outcome, "s": round(seconds, 1)}
                    f.write(json.dumps(entry) + "\n")


@functools.cache
def _wanted(name, shape, followed):
    """(inputs, results) of a shape; one set of data for all configurations."""
    inputs = t.CASES[name].tensors(*shape)
    arrays = t.data([*inputs, None], 0)
    plain = t.CASES[name].want(arrays, shape)
    if not followed:
        return arrays, plain
    arrays = [*arrays, *(np.random.default_rng(k).integers(-3, 4, plain.shape).astype("float32") for k in (1, 2))]
    return arrays, t.expected(name, shape, arrays)


def programs_of(pair):
    """(number, what builds it, digest) of configurations that the template and the device's limits allow, without end: the first,
    the last and random ones, every other one with what follows in a network. Yields also what fails: (number, exception, "")."""
    target, at = Target(pair.target), 0
    for cfg in t.drawn(t.space_of(pair.name, pair.shape, target), DRAWS, str((pair.name, pair.shape))):
        try:
            s, tensors = t.instantiate(pair.name, pair.shape, cfg, target, followed=at % 2 == 1)
            if not cfg.valid():
                continue
            text = "".join(_core.program(s._core, tensors, engine_of(target), _core.BUILD_NAME))
        except Exception as err:  # noqa: BLE001 - what else a template raises is its fault
            if isinstance(err, (RuntimeError, ValueError, MemoryError)) and any(w in str(err) for w in LIMITS):
                continue
            yield at, err, ""
        else:
            what = [pair.name, pair.shape, pair.target, pair.compiled_only, text]
            plain = target.kind.name == "opencl" and (len(text) > OPTIMISED or UNROLL in text)
            yield at, (s, tensors, target, plain), hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]
        at += 1


def _built(s, tensors, target, plain):
    """The program, as `nestsmith.build` makes it; `plain`: not optimised."""
    os.environ["POCL_EXTRA_BUILD_FLAGS"] = "-cl-opt-disable" if plain else ""
    if not plain:
        return ns.build(s, tensors, target)
    engine, name = engine_of(target), "default_function"
    source, manifest = _core.program(s._core, tensors, engine, name)
    source = source.replace(UNROLL, "")
    return OperatorModule(source, manifest, compile_source(target, source, name, True, None, engine)[0], target)


def outcome_of(pair, at, made):
    """Builds, runs and compares. One of `GOOD`, "limit: ..." or "WRONG: ..."."""
    s, tensors, target, plain = made
    try:
        module = _built(s, tensors, target, plain)
        if pair.compiled_only:
            return "compiled"
        arrays, want = _wanted(pair.name, pair.shape, at % 2 == 1)
        device = t.device_of(target)
        on_device = [ns.nd.array(a, device) for a in (*arrays, np.full(want.shape, np.nan, "float32"))]
        module(*on_device)
        t.check(pair.name, on_device[-1].numpy(), want)
        return PLAIN if plain else "right"
    except Exception as err:  # noqa: BLE001 - the report says what it was
        text = f"{type(err).__name__}: {err}"[:400]
        limit = isinstance(err, (RuntimeError, ValueError, MemoryError)) and any(w in str(err) for w in LIMITS)
        return f"limit: {text}" if limit else f"WRONG: {text}"


def _serve(talk):
    """A process: gets (pair, numbers, outcomes by digest of what is not run again), says of each that it begins, and how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NESTSMITH_BUILD_TIMEOUT"] = str(COMPILE_SECONDS)
    while (job := talk.recv()) is not None:
        pair, ats, settled = job
        for at, made, key in programs_of(pair):
            if at in ats and isinstance(made, Exception):
                talk.send((at, key, f"WRONG: {type(made).__name__}: {made}"))
            elif at in ats and key in settled:
                talk.send((at, key, settled[key]))
            elif at in ats:
                talk.send((at, key, None))
                talk.send((at, key, outcome_of(pair, at, made)))
            if at >= max(ats):
                break
        talk.send(None)


class _Worker:
    """A process that may hang or die, then another one."""

    def __init__(self):
        self._child = None

    def _started(self):
        if self._child is None or self._jobs >= JOBS_OF_A_PROCESS:
            self.close()
            context = multiprocessing.get_context("spawn")  # drivers do not survive a fork
            self._talk, there = context.Pipe()
            self._child, self._jobs = context.Process(target=_serve, args=(there,), daemon=True), 0
            self._child.start()
            there.close()
        self._jobs += 1
        return self._talk

    def run(self, pair, ats, ledger, note):
        """Some configurations of a shape."""
        settled, left = {k: v for k, v in ledger.known.items() if _settled(v)}, list(ats)
        while left:
            talk = self._started()
            talk.send((pair, left, settled))
            at, key, begun = left[0], "", time.monotonic()
            try:
                while talk.poll(RUN_SECONDS):
                    if (told := talk.recv()) is None:
                        return  # all, or all that a small space has
                    at, key, outcome = told
                    if outcome is None:
                        begun = time.monotonic()
                        continue
                    left.remove(at)
                    if key not in settled or at not in ledger.outcomes[pair.name, tuple(pair.shape)]:
                        ledger.add(pair, at, key, outcome, time.monotonic() - begun)
                    note(pair, at, outcome)
                outcome = f"limit: it took longer than {RUN_SECONDS} s"
            except EOFError:
                outcome = "WRONG: the process ended"
            self.close()
            left.remove(at)
            ledger.add(pair, at, key, outcome, time.monotonic() - begun)
            note(pair, at, outcome)

    def close(self):
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._talk.close()
            self._child = None


@contextlib.contextmanager
def _deep_stacks():
    """For processes that begin meanwhile. PoCL keeps what is private to the work-items of a group on a thread's stack, which is every
    variable where it does not optimise: 10 MB of a kernel with half a megabyte of text. Without a limit glibc gives threads 2 MB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY or soft < STACK:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK if hard == resource.RLIM_INFINITY else min(STACK, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def sweep(of, ledger=None, jobs=None, show=None, minutes=None, count=COUNT, first=0):
    """{pair: {number of the configuration: outcome}} for pairs of a template and a shape, from number `first` on."""
    ledger, outcomes, work, lock = Ledger(ledger), {p: {} for p in of}, queue.SimpleQueue(), threading.Lock()
    for begin in range(first, count, CHUNK):
        for p in of:
            work.put((p, list(range(begin, min(begin + CHUNK, count)))))
    end = time.monotonic() + 60 * minutes if minutes else float("inf")

    def note(pair, at, outcome):
        with lock:
            outcomes[pair][at] = outcome
            if show:
                show(pair, at, outcome)

    def lane():
        worker = _Worker()
        while time.monotonic() < end:
            try:
                pair, ats = work.get_nowait()
            except queue.Empty:
                break
            worker.run(pair, ats, ledger, note)
        worker.close()

    lanes = [threading.Thread(target=lane) for _ in range(jobs or CORES)]
    with _deep_stacks():
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
    return outcomes


def summary(outcomes):
    """Lines: how many configurations of how many were right, by template."""
    by_name = collections.defaultdict(collections.Counter)
    for pair, found in outcomes.items():
        by_name[pair.name].update(o.split(":")[0] for o in found.values())
    total = sum(by_name.values(), collections.Counter())
    return [f"{name:45} {', '.join(f'{n} {what}' for what, n in sorted(c.items()))}" for name, c in [*sorted(by_name.items()), ("all", total)]]


def write(folder, outcomes, target, machines):
    """The table, with the kinds of limits below it."""
    kinds, rows = collections.Counter(), []
    by_name = collections.defaultdict(list)
    for pair, found in outcomes.items():
        by_name[pair.name].append(found)
    total = [0] * 6
    for name, shapes in by_name.items():
        got = collections.Counter(o.split(":")[0] for found in shapes for o in found.values())
        row = [len(shapes), sum(got.values()), got["right"] + got["compiled"], got[PLAIN], got["limit"], got["WRONG"]]
        total = [a + b for a, b in zip(total, row)]
        rows.append(f"| `{name}` | " + " | ".join(map(str, row)) + " |")
        kinds.update(next(w for w in LIMITS if w in o) for f in shapes for o in f.values() if o.startswith("limit"))
    rows.append("| all | " + " | ".join(map(str, total)) + " |")
    where = target or "PoCL and CPU"
    text = [
        f"# Templates at shapes of ResNet-18, VGG-16 and MobileNet: {where}", "",
        "Random configurations on small whole numbers, equal to NumPy bit for bit (Winograd's after rounding); every other one is followed by",
        f"bias, relu and a sum. Written by `tests/autotvm/template_sweep.py`, {datetime.date.today()}{machines and ', on ' + machines}.", "",
        "| template | shapes | configurations | right | right, compiled without PoCL's optimiser | over a limit | wrong |",
        "|---|---|---|---|---|---|---|", *rows,
    ]  # fmt: skip
    if kinds:
        text += ["", "Limits: " + ", ".join(f"{n} × \"{k}\"" for k, n in kinds.most_common()) + "."]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(folder) / f"template-sweep-{(target or 'pocl-cpu').split()[0]}.md"
    path.write_text("\n".join(text) + "\n")
    print(f"written to {path}")


def check(found):
    """That none was wrong and some were right."""
    assert not (wrong := {at: o for at, o in found.items() if o.startswith("WRONG")}), wrong
    assert any(o in GOOD for o in found.values()), found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ledger", default=str(pathlib.Path(__file__).parents[2] / "build" / "template-sweep.jsonl"))
    parser.add_argument("--only", default="", help="templates whose name has this in it")
    parser.add_argument("--target", help="instead of the templates' own")
    parser.add_argument("--compile", action="store_true", help="compile only")
    parser.add_argument("--jobs", type=int, default=CORES)
    parser.add_argument("--count", type=int, default=COUNT, help="configurations of a shape")
    parser.add_argument("--first", type=int, default=0, help="number of the first configuration of each shape")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--out", help="folder of the table")
    parser.add_argument("--machines", default="", help="on which the ledger was filled, for the table")
    parser.add_argument("--report", action="store_true", help="what the ledger says; runs nothing")
    args = parser.parse_args()

    def show(pair, at, outcome):
        if outcome not in GOOD:
            print(pair.name, pair.shape, at, outcome, flush=True)

    of = pairs(args.only, args.target, args.compile)
    if args.report:
        known = Ledger(args.ledger).outcomes
        outcomes = {p: known[p.name, tuple(p.shape)] for p in of}
    else:
        outcomes = sweep(of, args.ledger, args.jobs, show, args.minutes, args.count, args.first)
    print("\n".join(summary(outcomes)))
    if args.out:
        write(args.out, outcomes, args.target, args.machines)
    sys.exit(any(o.startswith("WRONG") for found in outcomes.values() for o in found.values()))


if __name__ == "__main__":
    main()
