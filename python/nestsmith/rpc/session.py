"""A session on a device: what a user does there.

Programs run in the session's runner (csrc/runner), not in this process. What the engine's own device gives, memory and loaded
programs, a remote device gives over the wire, so that arrays, modules and the graph executor are the same classes here and there.
"""

import collections
import io
import math
import os
import pathlib
import shutil
import time
import weakref

import numpy as np

from .. import check
from ..cluster.runner import Runner, raise_error
from ..cluster.settings import ClusterError, SessionTimeout
from ..contrib import cc, utils
from ..registry import get_global_func
from ..runtime import Module, OperatorModule, library
from ..runtime.device import Device, device as make_device
from ..runtime.graph import GraphRuntime
from ..runtime.ndarray import NDArray, bytes_of
from .wire import pack, raised, unpack

__all__ = ["LocalSession", "RPCSession", "RemoteDevice"]

_MACHINES = {62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu", 40: "arm-linux-gnueabihf", 243: "riscv64-linux-gnu"}  # of ELF headers


class RemoteBuffer:
    """Memory of a remote device; the counterpart of the engine's Buffer."""

    def __init__(self, session, device, nbytes):
        self._session, self.nbytes = session, nbytes
        self.tensor = session.ask({"op": "alloc", "device": [device.device_type, device.device_id], "bytes": nbytes})[0]["tensor"]
        weakref.finalize(self, session.drop, self.tensor)

    def upload(self, data):
        """Copies an array in."""
        self._session.ask({"op": "write", "tensor": self.tensor}, np.ascontiguousarray(data).tobytes())

    def read(self):
        """The bytes."""
        return self._session.ask({"op": "read", "tensor": self.tensor})[1]

    def download(self, out):
        """Copies into an array."""
        np.copyto(out, np.frombuffer(self.read(), out.dtype).reshape(out.shape))

    def copy_from(self, other):
        """Copies another remote buffer."""
        self._session.ask({"op": "write", "tensor": self.tensor}, other.read())

    def fill(self, byte):
        """Sets every byte."""
        self._session.ask({"op": "fill", "tensor": self.tensor, "byte": byte})

    def dlpack(self, shape, code, bits):
        """Not possible: the memory is elsewhere."""
        raise TypeError("an array on a remote device cannot be shared by DLPack; copy it with numpy()")


def remote_array(session, described, keep=True):
    """An array of memory that a session has; keep: it is the array's, and is freed with it."""
    kind, number = described["device"]
    device = RemoteDevice(session, kind, number)
    buffer = RemoteBuffer.__new__(RemoteBuffer)
    buffer._session, buffer.tensor = session, described["nd"]
    buffer.nbytes = bytes_of(described["shape"], described["dtype"])
    if keep:
        weakref.finalize(buffer, session.drop, buffer.tensor)
    return NDArray(buffer, tuple(described["shape"]), described["dtype"], device)


class RemoteFunction:
    """A function of a server's process. What it raises there is raised here, as the class of that name or an RPCError."""

    def __init__(self, session, what, name):
        self._session, self._what, self.__name__ = session, what, name

    def __call__(self, *args):
        out: list = []
        packed = [pack(a, out, self._tensor) for a in args]
        reply, data = self._session.ask({"op": "call", **self._what, "args": packed}, b"".join(out))
        if reply.get("error"):
            raise raised(reply["class"], reply["msg"])
        return unpack(reply["value"], io.BytesIO(data), self._made)

    def _tensor(self, value):
        if isinstance(value, RemoteFunction) and value._session is self._session and "fn" in value._what:
            return value._what["fn"]
        if not isinstance(value, NDArray) or getattr(value.device, "session", None) is not self._session:
            raise TypeError("arrays and functions that are arguments have to be of the session: nd.array(x, remote.cpu(0))")
        return value.buffer.tensor

    def _made(self, kind, described):
        if kind == "nd":
            return remote_array(self._session, described)
        out = RemoteFunction(self._session, {"fn": described["fn"]}, "function")
        weakref.finalize(out, self._session.drop, -described["fn"])
        return out


class _Image:
    """A function of a module that the runner has loaded."""

    def __init__(self, module, entry):
        self.module, self.entry = module, entry


class _Program:
    """A function on a remote device; the counterpart of the engine's DeviceModule."""

    def __init__(self, session, image):
        self._session, self._where = session, {"module": image.module.handle, "entry": image.entry}
        self._keep = image

    def run(self, buffers):
        """Runs it and waits."""
        self._session.ask({"op": "run", **self._where, "args": [b.tensor for b in buffers]})

    def time(self, buffers, number, flush):
        """Mean seconds of `number` runs."""
        ask = {"op": "time", **self._where, "args": [b.tensor for b in buffers], "number": number, "flush": bool(flush)}
        return self._session.ask(ask)[0]["seconds"]


class _Handle:
    """The counterpart of the engine's Device."""

    def __init__(self, session, device):
        self._session, self._device = session, device

    def alloc(self, nbytes):
        """Memory."""
        return RemoteBuffer(self._session, self._device, nbytes)

    def load(self, image, manifest):
        """A program, which has to come from this session's `load_module`."""
        if not isinstance(image, _Image):
            raise TypeError("a module of this machine cannot run on a remote device; export it, upload it and load it there")
        return _Program(self._session, image)

    def info(self):
        """What the device says of itself."""
        return self._session.device_facts(self._device)

    def sync(self):
        """Waits."""
        self._session.ask({"op": "sync", "device": [self._device.device_type, self._device.device_id]})

    def flush(self):
        """Empties the device's caches."""
        self._session.ask({"op": "flush", "device": [self._device.device_type, self._device.device_id]})


class RemoteDevice(Device):
    """A device of a session. Properties are read once."""

    __slots__ = ("session",)

    def __init__(self, session, device_type, device_id=0):
        super().__init__(device_type, device_id)
        self.session = session

    def handle(self):
        """What arrays and modules use."""
        return _Handle(self.session, self)

    def _fact(self, name):
        facts = self.session.device_facts(self)
        return (facts.get({"driver_version": "driver"}.get(name, name)) or None) if facts else None

    exist = property(lambda self: bool(self.session.device_facts(self)), doc="Whether the device is there.")

    @property
    def why_not(self):
        """What is there instead."""
        found = ", ".join(f"{Device(d['type'], d['id'])} ({d['name']})" for d in self.session.facts["devices"])
        return "" if self.exist else f"{self.session} has no {Device(self.device_type, self.device_id)}; it has {found or 'none'}"

    def sync(self, stream=None):
        """Waits until the device has done all it was given."""
        self.handle().sync()

    def __eq__(self, other):
        same = isinstance(other, RemoteDevice) and self.session is other.session
        return same and (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self):
        return hash((id(self.session), self.device_type, self.device_id))

    def __repr__(self):
        return f"remote[{self.session.name}]:{super().__repr__()}"

    def __reduce__(self):
        raise TypeError("a device of a session cannot be pickled")


class _Exec:
    """A network in the runner; the counterpart of the engine's GraphExec."""

    captured = False

    def __init__(self, session, module, device):
        self._session, self._keep = session, module
        found = session.ask({"op": "graph", "module": module.handle, "device": [device.device_type, device.device_id]})[0]
        self._graph, self.params = found["graph"], found["params"]
        self._inputs = [(d["name"], (d["name"], tuple(d["shape"]), d["dtype"])) for d in found["inputs"]]
        self._outputs = [(i, tuple(d["shape"]), d["dtype"]) for i, d in enumerate(found["outputs"])]
        weakref.finalize(self, session.drop, self._graph)

    def _ask(self, op, data=b"", **fields):
        return self._session.ask({"op": op, "graph": self._graph, **fields}, data)

    def inputs(self):
        """(name, (entry, shape, dtype))"""
        return self._inputs

    def outputs(self):
        """(entry, shape, dtype)"""
        return self._outputs

    def set(self, name, value):
        """Gives an input its value."""
        self._ask("set", value.read() if isinstance(value, RemoteBuffer) else np.ascontiguousarray(value).tobytes(), name=name)

    def get(self, entry, out):
        """Copies an input (by name) or an output (by number) into a buffer or an array."""
        data = self._ask("input", name=entry)[1] if isinstance(entry, str) else self._ask("output", index=entry)[1]
        if isinstance(out, RemoteBuffer):
            out.upload(np.frombuffer(data, "uint8"))
        else:
            np.copyto(out, np.frombuffer(data, out.dtype).reshape(out.shape))

    def bind(self, entry, buffer):
        """Not there."""
        raise ValueError("a network in a session keeps its own memory; use set_input and get_output")

    def run(self):
        """Runs the network and waits."""
        self._ask("start")

    def time(self, number, flush=False):
        """Mean seconds of `number` runs."""
        return self._ask("time_graph", number=number, flush=bool(flush))[0]["seconds"]

    def node_times(self, number, weights=()):
        """Not there."""
        raise ValueError("a network in a session is timed as a whole (time_evaluator); its kernels are timed where it runs, by report()")

    def unset(self):
        """Inputs that were never set, as text."""
        return self._ask("unset")[0]["names"]


class _Module:
    """A library that the runner has loaded, as long as somebody uses it."""

    def __init__(self, session, name):
        self.facts = session.ask({"op": "load", "name": name})[0]
        self.handle = self.facts["module"]
        weakref.finalize(self, session.drop, self.handle)


class RemoteFactory:
    """A network in a session: ``lib["default"](device)`` puts it on a device of the session."""

    type_key = "rpc"

    def __init__(self, session, module):
        self._session, self._module = session, module

    def _create(self, *devices):
        if not devices:
            raise ValueError("give the device the network shall run on, for example lib['default'](remote.cl(0))")
        device = devices[0]
        if not isinstance(device, RemoteDevice) or device.session is not self._session:
            raise ValueError(f"the network is in {self._session}, it cannot run on {device}; use a device of the session (remote.cpu(0))")
        core = _Exec(self._session, self._module, device)
        return GraphRuntime.over(core, device, core.params, self._module.facts["original"])

    def get_function(self, name, query_imports=False):
        """The function that creates the network ("default"), or one of its operators."""
        facts = self._module.facts
        if name in (facts["name"], "cuda_graph_create"):
            return self._create
        if name in facts["functions"]:
            return _operator(self._session, self._module, name)[name]
        raise AttributeError(f"the library has no function {name!r}; it has {', '.join([facts['name'], *facts['functions']])}")

    __getitem__ = get_function

    def time_evaluator(self, func_name, dev, *args, **options):
        """Times one of the network's operators; the network itself is timed by what ``lib["default"](device)`` returns."""
        return _operator(self._session, self._module, func_name).time_evaluator(func_name, dev, *args, **options)


def _operator(session, module, name):
    manifest = session.ask({"op": "manifest", "module": module.handle, "entry": name})[0]["manifest"]
    return OperatorModule("", manifest, _Image(module, name))


class RPCSession:
    """A session on a device. It ends with `close`, with its last reference, after its limit, or when the device is lost.

    Parameters
    ----------
    link : object with ``ask(request, data, limit)``, ``close()`` and ``abandon()``, which does not wait
    facts : dict
        What the runner said when it started.
    name : str
        For messages.
    """

    def __init__(self, link, facts, name):
        self._link, self.facts, self.name = link, facts, name
        self._sent, self._gone = {}, collections.deque()  # _gone: handles that nobody has any more
        self._end = weakref.finalize(self, link.abandon)

    def __repr__(self):
        return f"{type(self).__name__}({self.name})"

    def ask(self, request, data=b"", limit=None):
        """(reply, bytes) of the session's runner. Raises what `RPCSession.__init__` names, and ValueError, MemoryError, OSError and
        TVMError for what the runner says."""
        if not self._end.alive:
            raise ClusterError(f"{self} is closed")
        while self._gone:
            try:
                self._link.ask({"op": "drop", "handle": self._gone.popleft()}, b"", None)
            except ValueError:
                continue  # it went with an earlier runner of the session
        return self._answer(self._link.ask(request, data, limit))

    def _answer(self, replied):
        reply = replied[0]
        if "error" in reply and reply["error"] != "python":  # of a server; other links have raised it
            raise_error(reply["error"], str(reply.get("msg", "")))
        return replied

    def drop(self, handle):
        """Nobody has the handle any more: it goes with the next request. For finalizers, which must not wait."""
        self._gone.append(handle)

    def close(self):
        """Ends the session; the device is free for others."""
        if self._end.detach():
            self._link.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # ---- devices ----
    def device_facts(self, device):
        """What a device says of itself, as a dict; None if it is not there."""
        found = self.facts["devices"]
        return next((d for d in found if (d["type"], d["id"]) == (device.device_type, device.device_id)), None)

    def device(self, dev_type, dev_id=0):
        """A device of the session by name ("cpu", "cuda", "opencl" or a target's text) and number. Raises ValueError for an unknown
        name."""
        d = make_device(dev_type, dev_id)
        return RemoteDevice(self, d.device_type, d.device_id)

    context = device

    def cpu(self, dev_id=0):
        """The CPU."""
        return self.device("cpu", dev_id)

    def cuda(self, dev_id=0):
        """An NVIDIA GPU."""
        return self.device("cuda", dev_id)

    gpu = cuda

    def cl(self, dev_id=0):
        """An OpenCL device."""
        return self.device("opencl", dev_id)

    opencl = cl

    # ---- files ----
    def upload(self, data, target=None):
        """Puts a file (a path, or bytes) into the session's directory, under `target` or its own name.

        Raises
        ------
        ValueError
            If the file is missing, or the name is not a plain one: a session's directory cannot be left.
        """
        if isinstance(data, (bytes, bytearray, memoryview)):
            if target is None:
                raise ValueError("bytes need a name: upload(data, target='net.so')")
            content = bytes(data)
        else:
            path = os.fspath(data)
            if not os.path.isfile(path):
                raise ValueError(f"cannot upload {path!r}: there is no such file")
            content, target = pathlib.Path(path).read_bytes(), target or os.path.basename(path)
        name = os.fspath(target)
        self.ask({"op": "put", "name": name}, content)
        self._sent[name] = content if library.is_archive(content) else None

    def download(self, path):
        """The content of a file in the session's directory, as a bytearray."""
        return bytearray(self.ask({"op": "get", "name": os.fspath(path)})[1])

    def remove(self, path):
        """Removes a file from the session's directory."""
        self.ask({"op": "del", "name": os.fspath(path)})
        self._sent.pop(os.fspath(path), None)

    def listdir(self, path="."):
        """Names of the files in the session's directory."""
        return sorted(name for name, _ in self.ask({"op": "list"})[0]["files"])

    # ---- programs ----
    def load_module(self, path):
        """Loads a library that was uploaded: what ``export_library`` wrote. An archive of objects (``.tar``) is linked here, for the
        machine of its objects.

        Returns
        -------
        OperatorModule or RemoteFactory
            The factory's ``["default"](device)`` makes what GraphModule wants.
        """
        name = os.fspath(path)
        content = self._sent[name] if name in self._sent else bytes(self.download(name)) if name.endswith(".tar") else None
        if content and library.is_archive(content):
            name = self._link_archive(name, content)
        module = _Module(self, name)
        if module.facts["kind"] == "network":
            return RemoteFactory(self, module)
        return _operator(self, module, module.facts["functions"][0])

    def system_lib(self):
        """The functions that are linked into the session's program: none."""
        return Module("system_lib")

    def download_linked_module(self, path):
        """The content of a library that was uploaded, as a bytearray; an archive of objects is linked first."""
        name, content = os.fspath(path), bytes(self.download(path))
        return self.download(self._link_archive(name, content) if library.is_archive(content) else name)

    def _link_archive(self, name, content):
        with utils.tempdir() as work:
            archive, linked = work.relpath("archive.tar"), work.relpath("library.so")
            pathlib.Path(archive).write_bytes(content)
            os.mkdir(work.relpath("objects"))
            objects = library.read_archive(archive, work.relpath("objects"))
            cc.create_shared(linked, objects, cc=_linker(objects[0]))
            self.ask({"op": "put", "name": name + ".so"}, pathlib.Path(linked).read_bytes())
        return name + ".so"

    def get_function(self, name):
        """A function of the session by TVM's name: "tvm.rpc.server.upload", ".download", ".remove", ".listdir"; on an `rpc.Server` also
        those that are registered in its process.

        Raises ValueError for others: a session does what it offers and nothing else.
        """
        known = {f"{p}.rpc.server.{n}": f for p in ("tvm", "nestsmith")
                 for n, f in (("upload", lambda to, data: self.upload(bytes(data), to)), ("download", self.download),
                              ("remove", self.remove), ("listdir", self.listdir))}  # fmt: skip
        if name not in known and getattr(self._link, "calls", False) and self.ask({"op": "has", "name": check.text("name", name)})[0]["has"]:
            return RemoteFunction(self, {"name": name}, name)
        if name not in known:
            raise ValueError(f"a session has no function {check.text('name', name)!r}; it has {', '.join(sorted(known))}")
        return known[name]


def _linker(path):
    """The compiler that links an object's machine; None: this machine's. Raises RuntimeError if it is missing."""
    triple = _MACHINES.get(int.from_bytes(pathlib.Path(path).read_bytes()[18:20], "little"), "")
    if not triple or triple.split("-")[0] == os.uname().machine:
        return None
    if shutil.which(f"{triple}-gcc"):
        return f"{triple}-gcc"
    raise RuntimeError(f"the archive's objects are for {triple}; install {triple}-gcc to link them (apt install gcc-{triple})")


class _OwnRunner:
    """A runner of this machine, without a tracker."""

    def __init__(self, seconds):
        self.runner, self.seconds = Runner("local"), seconds
        self.end = math.inf if seconds is None else time.monotonic() + seconds

    def ask(self, request, data, limit):
        left = self.end - time.monotonic()
        if left <= 0:
            raise SessionTimeout(f"the session's {self.seconds:g} s are over; ask for more with LocalSession(timeout=)")
        return self.runner.ask(request, data, limit if math.isinf(left) else min(left, limit or left))

    def close(self):
        self.runner.kill()

    abandon = close


class LocalSession(RPCSession):
    """A session in a process of this machine: the same as a remote one, without a tracker and without a network.

    Parameters
    ----------
    timeout : float, optional
        Seconds that the session may last; more than 0.
    """

    def __init__(self, timeout=None):
        link = _OwnRunner(None if timeout is None else check.number("timeout", timeout, 0))
        super().__init__(link, link.runner.facts, "local")

    def get_function(self, name):
        """As of other sessions; registered functions are those of this process."""
        found = get_global_func(name, allow_missing=True)
        return super().get_function(name) if found is None else found
