"""A board's measuring: batches of candidates of one task, run by the engine as a tuner on this machine runs them: an isolated worker,
the race of a task's candidates, the canary, outputs compared with the reference."""

import time

from .. import _core
from ..target import Target
from .settings import ClusterError, SessionTimeout

__all__ = ["Bench"]

MOST_TASKS = 64  # of a pipeline: their data stays in memory
POLL_SECONDS = 0.1


class _Line:
    """A pipeline for one target, and the tasks that it knows."""

    def __init__(self, target, device_id, lock, via):
        engine = Target(target)
        self.kind, self.tasks, self.best, self.tag = engine.kind.device_type, {}, {}, 0
        command = via(["--worker", str(self.kind), str(device_id)]) if via else None
        self.pipeline = _core.Pipeline(engine.engine(), self.kind, device_id, -1, lock=lock, via=command)

    def task(self, name, rows):
        """The number of a task; None if its data has to be sent first."""
        if name not in self.tasks and rows is not None:
            data = [(n, values if values else None, out, dtype, exact) for n, values, out, dtype, exact in rows]
            self.tasks[name] = self.pipeline.task(_core.TaskData(data))
        return self.tasks.get(name)


class Bench:
    """What a session measures with; made anew for each session, so that nobody meets what another one left behind.

    Parameters
    ----------
    via : callable, optional
        Gives the command that starts a runner elsewhere with options, to measure there instead of on this machine.
    """

    def __init__(self, via=None):
        self._lines, self._via, self.ended = {}, via, False

    def measure(self, m, limit=None):
        """The reply to a batch. `m`: "target" (text), "device", "lock", "task" (name), "rows" of its data (or None, if it was sent
        before), "best" (seconds, 0: none), "policy", "items": [(binary, manifest), ...].

        Returns
        -------
        dict
            "results" in the order of the items and the "canary" in seconds, the engine's "pace"; or "unknown": the task's data is
            wanted.

        Raises
        ------
        SessionTimeout
            After `limit` seconds.
        """
        key = (m["target"], int(m["device"]))
        line = self._lines.get(key)
        if line is None or len(line.tasks) >= MOST_TASKS:
            if line is not None:
                line.pipeline.close()
            line = self._lines[key] = _Line(m["target"], int(m["device"]), int(m["lock"]), self._via)
        number = line.task(m["task"], m.get("rows"))
        if number is None:
            return {"unknown": True}
        return {"results": self._run(line, number, m, limit), "canary": line.pipeline.stats()["pace"]}

    def _run(self, line, number, m, limit):
        pipe, items, first = line.pipeline, m["items"], line.tag
        line.tag += len(items)
        if m["best"] and m["best"] < line.best.get(number, 1e30):
            pipe.incumbent(number, m["best"])
            line.best[number] = m["best"]
        end, out = None if limit is None else time.monotonic() + limit, [None] * len(items)
        pipe.hold(number, 1)
        for k, (binary, manifest) in enumerate(items):
            pipe.submit_built(number, binary, manifest, first + k, dict(m["policy"]))
        pipe.hold(number, -1)
        while any(r is None for r in out):
            if self.ended:
                raise ClusterError("the session has ended")
            if end is not None and time.monotonic() > end:
                raise SessionTimeout(f"the batch took longer than {limit:g} s")
            for result in pipe.poll(POLL_SECONDS):
                tag = result["tag"]
                if tag < first:
                    continue  # of a batch that took too long
                del result["occupancy"]  # told by who compiles
                out[tag - first] = result
                if not result["error"] and result["full"] and result["costs"]:
                    line.best[number] = min(line.best.get(number, 1e30), sum(result["costs"]) / len(result["costs"]))
        return out

    def close(self):
        """Ends all its processes. Not while `measure` runs: that has to be told by `ended`."""
        for line in self._lines.values():
            line.pipeline.close()
        self._lines = {}
