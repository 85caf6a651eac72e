"""Measuring templates on devices that a tracker lends."""

import contextlib
import os

from ... import rpc
from ...auto_scheduler.hardware import cores
from ...auto_scheduler.remote import RPCRunner as EngineRPCRunner
from .measure_methods import EngineRunner
from .program import advise, limits_of

__all__ = ["RPCRunner", "check_remote", "default_module_loader", "request_remote"]

WAIT_SECONDS = 10.0  # for a first device, when a task begins
request_remote, check_remote = rpc.request_remote, rpc.check_remote


def default_module_loader(pre_load_function=None):
    """What loads an artifact where nobody names another way: it asks for a session, uploads the file and loads it.

    Parameters
    ----------
    pre_load_function : callable, optional
        Called with (session, BuildResult) before the upload.

    Returns
    -------
    callable
        (remote_kwargs, BuildResult) -> context manager of (session, module). ``remote_kwargs`` are the arguments of
        `request_remote`; those of a `LocalRunner` name no key, and the session is one of this machine.
    """

    @contextlib.contextmanager
    def load(remote_kwargs, build_result):
        open_session = rpc.request_remote if "device_key" in remote_kwargs else rpc.LocalSession
        with open_session(**remote_kwargs) as remote:
            if pre_load_function is not None:
                pre_load_function(remote, build_result)
            remote.upload(build_result.filename)
            yield remote, remote.load_module(os.path.basename(build_result.filename))

    return load


class RPCRunner(EngineRunner):
    """Runs configurations on devices of a tracker, each in the isolated worker of its board.

    Parameters
    ----------
    key : str
        What the devices are asked for by.
    host, port : str, int, optional
        Of the tracker; without them NESTSMITH_TRACKER_HOST and _PORT, TVM_TRACKER_HOST and _PORT, 127.0.0.1:9190.
    priority : int
        Larger is served first.
    timeout : float
        Seconds per configuration; waiting for a device does not count.
    n_parallel : int, optional
        Devices that measure at the same time; default one per core of this machine.
    number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, module_loader, device, check, mode, l2, busy
        As of `LocalRunner`; `device` is a number, and it is the board that rests.
    tls_dir : str, optional
        Directory with ca.pem, cert.pem and key.pem; NESTSMITH_TLS_DIR without it.

    Raises
    ------
    ValueError
        If a word is unknown or a number too small.
    RPCError
        When a task begins: no tracker, or no device of the key within 10 s.
    """

    overlaps = True

    def __init__(self, key, host=None, port=None, priority=1, timeout=10, n_parallel=None, number=4, repeat=3,
                 min_repeat_ms=0, cooldown_interval=0.1, enable_cpu_cache_flush=False, module_loader=None, device=0,
                 check="best", mode="auto", l2="mixed", busy=None, tls_dir=None):
        engine = EngineRPCRunner(key, host, port, priority, n_parallel or cores(), timeout, number, repeat,
                                 min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, device, mode, l2, busy,
                                 tls_dir)
        super().__init__(engine, check, engine.n_parallel, module_loader)
        self._limits = {}
        for name in ("key", "host", "port", "priority"):
            setattr(self, name, getattr(engine, name))

    def __repr__(self):
        return f"RPCRunner(key={self.key!r}, host={self.host!r}, port={self.port}, timeout={self.timeout}, number={self.number})"

    def remote_kwargs(self):
        own = {"device_key": self.key, "host": self.host, "port": self.port, "priority": self.priority}
        return {**own, **super().remote_kwargs(), "tls_dir": self.engine.tls_dir}

    def set_task(self, task):
        """Waits for a device of the key. Raises RPCError that names key, tracker and the query if none comes."""
        super().set_task(task)
        self.engine.lanes.check(WAIT_SECONDS)

    def get_build_kwargs(self):
        """The limits of the device that will run the programs, where they are below the target's; {} for a CPU."""
        known = limits_of(self.task.target)
        if not known:
            return {}
        kind = self.task.target.kind.device_type
        if kind not in self._limits:
            with rpc.request_remote(self.key, self.host, self.port, self.priority, tls_dir=self.engine.tls_dir) as remote:
                self._limits[kind] = remote.device_facts(remote.device(kind, self.device))
        facts = self._limits[kind]
        if facts is None:
            raise rpc.RPCError(f"the devices of key {self.key!r} have no {self.task.target.kind.name} device {self.device}")
        advise(self.task.target, facts["name"])
        asked, found = known["check_gpu"], {}
        for name, own in (("max_threads_per_block", "max_threads_per_block"), ("max_shared_memory_per_block", "max_shared_per_block")):
            found[name] = min(asked[name], int(facts[own])) if facts.get(own) else asked[name]
        return {"check_gpu": {**asked, **found}}
