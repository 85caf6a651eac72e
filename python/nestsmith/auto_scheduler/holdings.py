"""What a tuning log has for the tasks of a network, and why it has nothing for the others.

This is the one place that decides it; dispatch contexts, `relay.build`, the task scheduler and `task.apply_best` ask here
and say one line: ``0 of 4 tasks found in o.json: keys differ because ...``.
"""

from collections import Counter

from nestsmith import _core

from ..numerics import math_mode, mode_fits
from ..relay.passes import PassContext
from .cost import NOTHING, rank_of
from .log_files import no_log
from .measure_record import log_groups
from .workload_keys import decode_workload_key

__all__ = ["Holdings", "architecture", "mode_of", "named", "place"]

UNKNOWN = "no record for this workload"


def architecture(target):
    """(architecture or processor, device) that a target names, "" where it names none."""
    return str(target.attrs.get("arch") or target.attrs.get("mcpu") or ""), str(target.attrs.get("device") or "")


def place(task):
    """Where the records of a task belong, besides their kind of target: the `architecture`, and the math mode if that is not
    strict."""
    return architecture(task.target) + ((task.math,) if task.math != "strict" else ())


def mode_of(where):
    """The math mode of a `place`."""
    return where[2] if len(where) > 2 else "strict"


def named(arch):
    """An `architecture` as text."""
    return "/".join(a for a in arch if a) or "an unnamed architecture"


class Holdings:
    """Records counted by workload, kind of target and place (architecture and math mode)."""

    def __init__(self):
        self.sources, self.records = [], 0
        self.log, self.groups = None, []  # of one log: where its groups of records belong, None for targets nobody knows
        self._of = {}  # workload (name, sizes) -> {(kind, architecture): [valid, failed]}

    @classmethod
    def of_log(cls, log_file):
        """Those of a log; of a file that is none nothing, without a warning: the verdict says so."""
        out = cls()
        out.sources.append(log_file)
        if not no_log(log_file):
            out.log = _core.TuneLog(log_file)
            out.groups = [t and out.add_group(t, *counts) for t, *counts in log_groups(out.log, log_file)]
        return out

    @classmethod
    def together(cls, several):
        """Those of several sources."""
        out = cls()
        for h in several:
            out.sources += h.sources
            out.records += h.records
            for workload, counts in h._of.items():
                mine = out._of.setdefault(workload, {})
                for where, (valid, failed) in counts.items():
                    before = mine.get(where, (0, 0))
                    mine[where] = [before[0] + valid, before[1] + failed]
        return out

    def add(self, inp, res):
        """One record. Returns its workload, kind of target, architecture and rank."""
        rank = rank_of(res)
        return *self.add_group(inp.task, rank != NOTHING, rank == NOTHING), rank

    def add_group(self, task, valid, failed):
        """So many records of one task. Returns its workload, kind of target and architecture."""
        workload, kind, arch = decode_workload_key(task.workload_key), task.target.kind.name, place(task)
        self.records += valid + failed
        mine = self._of.setdefault(workload, {}).setdefault((kind, arch), [0, 0])
        mine[0], mine[1] = mine[0] + valid, mine[1] + failed
        return workload, kind, arch

    def count(self, workloads, kind, arch):
        """Number of records, failed ones too, of a task for a kind of target and an architecture."""
        return sum(sum(self._of.get(w, {}).get((kind, arch), ())) for w in workloads)

    def tally(self, workloads):
        """(records, failed ones among them) of a task, wherever they were measured."""
        counts = [n for w in workloads for n in self._of.get(w, {}).values()]
        return sum(map(sum, counts)), sum(failed for _, failed in counts)

    def why_not(self, workloads, kind, arch=None, math=None):
        """Why there is no valid record for a task on a kind of target (and an architecture); "" if there is one.

        `workloads` are the names of the task, as `decode_workload_key` gives them. Without an architecture, records count that fit
        the math mode `math`, by default that of the PassContext.
        """
        counts = [(where, n) for w in workloads for where, n in self._of.get(w, {}).items()]
        here = [(a, n) for (k, a), n in counts if k == kind]
        allowed = math or math_mode(PassContext.current().config)
        own = [n for a, n in here if (mode_fits(mode_of(a), allowed) if arch is None else a == arch)]
        if any(valid for valid, _ in own):
            return ""
        if own:
            return f"only failed trials ({sum(failed for _, failed in own)})"
        if here:
            return f"only records for {', '.join(sorted({named(a) for a, _ in here}))}"
        others = sorted({k for (k, _), (valid, _) in counts if valid})
        return f"only records for {', '.join(others)}" if others else UNKNOWN

    def reasons(self, tasks, kind, arch=None, because="", math=None):
        """Why tasks were not found, in one line; "" if all were.

        Parameters
        ----------
        tasks : list of (list of workloads, bool)
            The names of each task, and whether it was found.
        kind : str
            Of the target.
        arch : tuple of str, optional
            The architecture, where records of others do not count.
        because : str, optional
            Why keys differ, where the caller knows.
        math : str, optional
            As in :meth:`why_not`.

        Returns
        -------
        str
        """
        missing = [workloads for workloads, found in tasks if not found]
        reasons = Counter(self.why_not(w, kind, arch, math) or "their steps cannot be used" for w in missing)
        parts = []
        for reason, n in reasons.most_common():
            if reason == UNKNOWN:
                unknown = [w for w in missing if self.why_not(w, kind, arch, math) == UNKNOWN]
                reason = because or self._difference(unknown, tasks, kind)
            parts.append(reason if len(reasons) == 1 else f"{reason} (for {n})")
        return "; ".join(parts)

    def verdict(self, tasks, kind, arch=None, because=""):
        """The line that says how many tasks were found and, as `reasons`, why the others were not."""
        found, why = sum(there for _, there in tasks), self.reasons(tasks, kind, arch, because)
        text = f"{found} of {len(tasks)} tasks found in {', '.join(map(str, self.sources))}"
        return f"{text}: {why}" if why else text

    def _others(self, tasks, kind):
        """Workloads that there are records for, and that none of the tasks is."""
        wanted = {w for workloads, _ in tasks for w in workloads}
        return [w for w, counts in self._of.items() if w not in wanted and any(k == kind for k, _ in counts)]

    def seems_foreign(self, tasks, kind):
        """Whether tasks have no record at all, while there are records of others, and not just of very many others."""
        unknown = [w for w, found in tasks if not found and self.why_not(w, kind) == UNKNOWN]
        others = len(self._others(tasks, kind))
        return bool(unknown and others) and (2 * len(unknown) > len(tasks) or others <= 2 * len(tasks))

    def _difference(self, unknown, tasks, kind):
        """How the workloads that no record is for differ from those that there are records for."""
        if not self.records:
            return "; ".join(filter(None, (no_log(s) and f"it {no_log(s)}" for s in self.sources))) or "it holds no record"
        others = self._others(tasks, kind)
        if not others:
            return "no record for the others"
        changes = Counter()  # of one number: batch size, width, ...
        for workloads in unknown:
            changes.update({c for w in workloads for o in others if (c := _change(o, w)) is not None})
        change, n = changes.most_common(1)[0] if changes else (None, 0)
        if 2 * n >= len(unknown) and change is not None:
            return f"keys differ because the log has {change[0]} where this has {change[1]} (another batch size?)"
        names = {name for name, _ in others}
        if 2 * sum(any(name in names for name, _ in w) for w in unknown) > len(unknown):
            return "keys differ because the log has other sizes of the same operators"
        return (f"keys differ because the log's other records ({len(others)} workloads) are of another network, of "
                "another opt_level, layout, size or dtype of it, or of another release (python -m nestsmith.log "
                "--mode from-tvm)")


def _change(recorded, wanted):
    """The pair of numbers in which the sizes of two workloads differ, if it is one and the same wherever they do."""
    a, b = recorded[1], wanted[1]
    if a is None or b is None or len(a) != len(b):
        return None
    pairs = {(x, y) for x, y in zip(a, b) if x != y}
    return pairs.pop() if len(pairs) == 1 else None
