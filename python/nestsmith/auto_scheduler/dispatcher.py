"""Which schedule a program gets: a stack of contexts, the innermost asked first.

`ApplyHistoryBest` answers from tuning records. The outermost context is `FallbackContext`: it has no schedule
and says so once per workload.
"""

import itertools
import logging
import math
import pathlib

from .. import check
from ..numerics import math_mode, mode_fits
from ..relay.passes import PassContext
from .cost import NOTHING, rank_of
from .holdings import Holdings, architecture, named
from .log_files import missing_log, no_log
from .measure_record import RecordReader, known_targets
from .relatives import fitted
from .workload_keys import calc_workload_dis_factor, decode_workload_key, size_factor

__all__ = ["DispatchContext", "ApplyHistoryBest", "FallbackContext", "tell_history"]

logger = logging.getLogger("auto_scheduler")
OTHER_SIZES = "similar task (other sizes)"  # an origin


class DispatchContext(check.Nested):
    """Base of contexts; `DispatchContext.current` is the innermost one."""

    def query(self, target, workload_key, has_complex_op, dag, func_name):
        """The schedule for a workload, from this context or an outer one; None if there is none.

        Parameters
        ----------
        target : Target
        workload_key : str
        has_complex_op : bool
            The program reduces; a miss is then worth a warning.
        dag : ComputeDAG
        func_name : str

        Returns
        -------
        State or None
        """
        found = self._query_inside(target, workload_key, func_name)
        if found is None and self._old_ctx is not None:
            found = self._old_ctx.query(target, workload_key, has_complex_op, dag, func_name)
        return found

    def update(self, target, workload_key, state):
        """Makes `state` the answer for a workload."""
        raise NotImplementedError

    def origin(self, target, workload_key):
        """Where this context has its answer for a workload from, in a few words; "" if it has none."""
        return ""

    def _query_inside(self, target, workload_key, func_name=""):
        raise NotImplementedError


class _Entry:
    __slots__ = "arch", "math", "model", "rank", "state"

    def __init__(self, arch, model, math, rank, state):
        self.arch, self.model, self.math, self.rank, self.state = arch, model, math, rank, state


class ApplyHistoryBest(DispatchContext):
    """Answers with the fastest recorded schedule.

    A record counts for the kind of target it was measured on. Records of the same architecture and model win over
    others of the same kind. Records of a task that was allowed TF32 count where the PassContext allows it, too.

    Parameters
    ----------
    records : str, pathlib.Path, list, or iterable of (MeasureInput, MeasureResult)
        Log files (names and pairs may be mixed), or None.
    n_lines : int, optional
        Read at most so many records of each source.
    include_compatible : bool
        Also take a schedule of the same computation whose sizes divide the wanted ones.
    strict : bool
        A missing file, or a workload with a reduction but without a schedule, is an error instead of a warning.
    allow_cross_kind : bool
        Also take records of another kind of target.
    """

    tells = True  # whether a build says how many of its tasks have a record here, and why the others have none

    def __init__(self, records, n_lines=None, include_compatible=False, strict=False, allow_cross_kind=False):
        super().__init__()
        self.include_compatible, self.strict, self.allow_cross_kind = include_compatible, strict, allow_cross_kind
        self.best = {}  # kind -> name -> arguments -> [entries]
        self._user = {}  # (kind, name, arguments) -> state
        self.holdings = Holdings()  # what was read, for messages
        self._asked = {}
        self._elsewhere = {}  # workload key -> where its record comes from, if not from the target's architecture
        self.load(records, n_lines)

    def load(self, records, n_lines=None):
        """Adds records. See the constructor."""
        for pairs in self._sources(records):
            where = getattr(pairs, "filename", "the given records")
            if n_lines is None and isinstance(pairs, RecordReader):  # the best of each workload and target will do
                held = Holdings.of_log(where)
                self.holdings = Holdings.together([self.holdings, held])
                known = [g[-1] for g, there in zip(held.log.groups, held.groups) if there] if held.log else []
                for inp, res in pairs.at(sorted(known)):
                    self._add(inp, res)
                continue
            self.holdings.sources.append(where)
            for inp, res in known_targets(itertools.islice(pairs, n_lines), where):
                self.holdings.add(inp, res)
                self._add(inp, res)
        logger.debug("ApplyHistoryBest: %d workloads",
                     sum(len(a) for names in self.best.values() for a in names.values()))

    def _sources(self, records):
        if records is None:
            return
        if isinstance(records, (str, pathlib.Path)):
            if no_log(records):
                if self.strict:
                    raise missing_log(records)
                logger.warning("tuning log %s %s; default schedules will be used", records, no_log(records))
                return
            yield RecordReader(str(records))
            return
        loose = []
        for r in records:
            if isinstance(r, (str, pathlib.Path)):
                yield from self._sources(r)
            elif r is not None:
                loose.append(r)
        if loose:
            yield loose

    def _add(self, inp, res):
        if (getattr(res, "extra", None) or {}).get("ok") is False:
            return
        target, rank = inp.task.target, rank_of(res)
        if rank == NOTHING:
            return
        (name, args), kind, arch = decode_workload_key(inp.task.workload_key), target.kind.name, architecture(target)
        e = _Entry(arch, str(target.model), getattr(inp.task, "math", "strict"), rank, inp.state)
        entries = self.best.setdefault(kind, {}).setdefault(name, {}).setdefault(args, [])
        for k, old in enumerate(entries):
            if (old.arch, old.model, old.math) == (e.arch, e.model, e.math):
                if e.rank < old.rank:
                    entries[k] = e
                return
        entries.append(e)

    def _rank(self, target, entry, factor):
        quick, cost = entry.rank
        return entry.arch != architecture(target), entry.model != str(target.model), quick, cost * factor

    def _usable(self, kind, name, args, math_allowed=None):
        """Entries of a workload in math modes that are allowed, by default by the PassContext."""
        allowed = math_allowed or math_mode(PassContext.current().config)
        return [e for e in self.best.get(kind, {}).get(name, {}).get(args, ()) if mode_fits(e.math, allowed)]

    def _look(self, target, kind, name, args):
        """The best entry for a workload, or None."""
        wanted, near = (name, args), {args: self._usable(kind, name, args)}
        if not near[args] and self.include_compatible:
            near = {a: self._usable(kind, name, a) for a in self.best.get(kind, {}).get(name, {})}
        factors = {recorded: calc_workload_dis_factor(wanted, (name, recorded)) for recorded in near}
        ranked = [(self._rank(target, e, f), e) for a, f in factors.items() if f < math.inf for e in near[a]]
        return min(ranked, key=lambda r: r[0])[1] if ranked else None

    def in_other_sizes(self, target, workload_key, dag, most=1, math_allowed=None, whole=False):
        """Schedules of recorded workloads whose sizes differ from these by one factor, as those of another batch size do, fitted to
        `dag`: up to `most` states, the nearest size first. `whole`: a factor of which one is a multiple of the other."""
        wanted, kind, near, out = decode_workload_key(workload_key), target.kind.name, [], []
        for name, sizes in self.best.get(kind, {}).items():
            for args in sizes:
                factor = size_factor(wanted, (name, args))
                fits = factor and not (whole and 1 not in (factor.numerator, factor.denominator))
                entries = self._usable(kind, name, args, math_allowed) if fits else ()
                near += [(abs(math.log(factor)), self._rank(target, e, factor), e) for e in entries]
        for _, _, e in sorted(near, key=lambda n: n[:2]):
            state = fitted(dag, e.state) if len(out) < most else None
            if state is not None:
                out.append(state)
        return out

    def _query_inside(self, target, workload_key, func_name=""):
        if target is None:
            raise RuntimeError("Need a target context to find the history best. Hint: if your target is llvm, use "
                               "`with nestsmith.target.Target(...):`")
        name, args = decode_workload_key(workload_key)
        kind = target.kind.name
        if (kind, name, args) in self._user:
            return self._user[(kind, name, args)]
        for k in [kind] + ([k for k in self.best if k != kind] if self.allow_cross_kind else []):
            entry = self._look(target, k, name, args)
            if entry is None:
                continue
            self._asked[workload_key] = "exact"
            if entry.arch != architecture(target):
                self._elsewhere[workload_key] = named(entry.arch)
            return entry.state
        self._asked.setdefault(workload_key, self.holdings.why_not([(name, args)], kind))
        return None

    def query(self, target, workload_key, has_complex_op, dag, func_name):
        """As `DispatchContext.query`. Raises RuntimeError where `strict` asks for it and there is no schedule."""
        found = super().query(target, workload_key, has_complex_op, dag, func_name)
        if found is None and self.strict and has_complex_op:
            raise RuntimeError(f"{func_name}: no schedule for {workload_key}: {self._asked.get(workload_key)}")
        return found

    def origin(self, target, workload_key):
        name, args = decode_workload_key(workload_key)
        kind = target.kind.name
        if (kind, name, args) in self._user:
            return "given by hand"
        if self._usable(kind, name, args):
            entry = self._look(target, kind, name, args)
            return "log record" + (f" ({entry.math})" if entry.math != "strict" else "")
        return OTHER_SIZES if self._asked.get(workload_key) == "exact" else ""

    def rank(self, target, workload_key):
        """What the best record of exactly this workload is worth beside those of other workloads that compute the same: (whether it is of
        another architecture, of another model, seconds), the smaller the better; what was given by hand goes before all. None without a
        record. A quick time counts as a full one does: a first look at a workload may have no others, and they differ by some percent."""
        where = target.kind.name, *decode_workload_key(workload_key)
        if where in self._user:
            return False, False, 0.0
        entries = self._usable(*where)
        arch, model, _, seconds = min((self._rank(target, e, 1) for e in entries), default=(None,) * 4)
        return None if seconds is None else (arch, model, seconds)

    def report(self):
        """What was asked for and why what is missing is missing: {workload key: "exact" or the reason}."""
        return dict(self._asked)

    def update(self, target, workload_key, state):
        name, args = decode_workload_key(workload_key)
        self._user[(target.kind.name, name, args)] = state


class FallbackContext(DispatchContext):
    """The outermost context: no schedule for anything. `verbose`: 0 silent, 1 warns for reductions, 2 for all."""

    def __init__(self, verbose=1):
        super().__init__()
        self.memory, self.verbose = {}, verbose
        self.messages = set()

    def query(self, target, workload_key, has_complex_op, dag, func_name):
        key = str(target), workload_key
        if key in self.memory:
            return self.memory[key]
        if self.verbose == 2 or (has_complex_op and self.verbose == 1):
            msg = (f"Cannot find tuned schedules for target={target}, workload_key={workload_key}. A fallback schedule "
                   "is used, which may bring great performance regression. ")
            logs = with_records()
            if logs:  # one line: what is behind it is said once for the network
                why = [w for c in logs if (w := c.report().get(workload_key, "")).startswith("only")]
                msg = f"{func_name}: {msg}" + (f"Reason: {why[0]}." if why else "")
            else:
                msg = f"-----------------------------------\n{func_name}\n{msg}Compute DAG info:\n{dag}"
            if msg not in self.messages:
                self.messages.add(msg)
                logger.warning(msg)
        self.memory[key] = None
        return None

    def _query_inside(self, target, workload_key, func_name=""):
        return self.memory.get((str(target), workload_key))

    def update(self, target, workload_key, state):
        self.memory[(str(target), workload_key)] = state

    def clear_cache(self, target, workload_key):
        """Forgets the answer for a workload, so that a miss is reported again."""
        self.memory.pop((str(target), workload_key), None)


DispatchContext.current = FallbackContext()


def with_records():
    """The active contexts that have read records and speak of it, the innermost first."""
    histories = [c for c in check.entered(DispatchContext.current) if isinstance(c, ApplyHistoryBest)]
    return [c for c in histories if c.holdings.sources and c.tells]


def tell_history(tasks, target, because):
    """One line about the logs of the active contexts, after a network was looked up in them: how many of its tasks they
    have, and why not the others, or that they were measured elsewhere.

    Parameters
    ----------
    tasks : list of (list of str, bool)
        The keys of each task, and whether a schedule was found.
    target : Target
    because : callable
        Called with the `Holdings` if the log seems to be of another build of the network: a text that says of which,
        or "".
    """
    contexts = with_records()
    if not contexts or not tasks:
        return
    held, kind = Holdings.together(c.holdings for c in contexts), target.kind.name
    named_tasks = [([decode_workload_key(k) for k in keys], found) for keys, found in tasks]
    why = because(held) if held.seems_foreign(named_tasks, kind) else ""
    line = held.verdict(named_tasks, kind, because=why)
    foreign = [where for c in contexts for keys, _ in tasks for k in keys if (where := c._elsewhere.get(k))]
    if foreign:
        line += (f"; {len(foreign)} of the schedules for {target} come from records of "
                 f"{', '.join(sorted(set(foreign)))}: they run, but may be far from the best here; tune on this device "
                 "and give that log")
    missing = not all(found for _, found in tasks)
    logger.log(logging.WARNING if missing or foreign else logging.INFO, "%s", line)
