"""Modules: compiled programs, their functions, timing, saving and loading."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import re
import warnings
from collections.abc import Callable

from nestsmith import _core

from .. import files
from ..contrib import cc, tar, utils
from ..error import TVMValueError
from ..target import Target
from . import library
from .device import device as _device
from .ndarray import NDArray
from .timing import BenchmarkResult, evaluator, time_calls

__all__ = ["Module", "OperatorModule", "LibraryModule", "SourceModule", "StaticLibrary", "BenchmarkResult",
           "load_module", "load_static_library", "system_lib", "enabled", "register_loader"]

_DEVICE_OF_KIND = {"c": 1, "cuda": 2, "opencl": 4}


class Module:
    """A set of functions, with the modules that it uses below it (device code).

    Parameters
    ----------
    type_key : str
        What it holds: "c", "cuda", "opencl", "graph", ...
    functions : dict, optional
        From name to callable.
    entry : str, optional
        Name of the function that `module(...)` calls.
    """

    entry_name = "__nestsmith_main__"

    def __init__(self, type_key="c", functions=None, entry=None):
        self.type_key, self.imported_modules = type_key, []
        self._functions = dict(functions or {})
        self._entry = entry

    @property
    def format(self):
        """Extension of files of this kind."""
        return {"cuda": "cu", "opencl": "cl", "c": "c"}.get(self.type_key, "")

    def get_function(self, name, query_imports=False):
        """The function of this name; `AttributeError` if there is none. `ValueError` if the name is no string."""
        if not isinstance(name, str):
            raise ValueError(f"functions are named by strings, not {type(name).__name__}")
        key = self._entry if name in (self.entry_name, "__tvm_main__") and self._entry else name
        if key in self._functions:
            return self._functions[key]
        for m in self.imported_modules if query_imports else ():
            if m.implements_function(name, True):
                return m.get_function(name, True)
        raise AttributeError(f"module has no function {name!r}; it has {', '.join(sorted(self._functions)) or 'none'}")

    def implements_function(self, name, query_imports=False):
        """Whether `get_function` would find it."""
        try:
            self.get_function(name, query_imports)
        except AttributeError:
            return False
        return True

    def __getitem__(self, name):
        return self.get_function(name)

    entry_func = property(lambda self: self.get_function(self.entry_name), doc="The function that `module(...)` calls.")

    def __call__(self, *args):
        return self.entry_func(*args)

    def import_module(self, module):
        """Hangs `module` below this one."""
        self.imported_modules.append(module)

    is_dso_exportable = property(lambda self: False,
                                 doc="Whether `export_library` of a module that imports this one links it in.")
    is_runnable = property(lambda self: True, doc="Whether its functions can be called.")
    is_binary_serializable = property(lambda self: False, doc="Whether `export_library` stores it as bytes.")

    def get_source(self, fmt=""):
        """Source text, "" where there is none."""
        return ""

    def save(self, file_name, fmt=""):
        """Writes the source text to a file. Raises RuntimeError if there is none."""
        text = self.get_source(fmt)
        if not text:
            raise RuntimeError(f"a {self.type_key!r} module has no source to save; use export_library")
        pathlib.Path(file_name).write_text(text)

    def time_evaluator(self, func_name, dev, number=10, repeat=1, min_repeat_ms=0, limit_zero_time_iterations=100,
                       cooldown_interval_ms=0, repeats_to_cooldown=1, cache_flush_bytes=0, f_preproc=""):
        """A callable that times a function.

        Called with the function's arguments it runs it once, then measures `repeat` times. Networks
        (``GraphModule.module.time_evaluator``) and sessions are timed in the same way.

        Parameters
        ----------
        func_name : str
            Function of this module.
        dev : Device
            Where the arguments are.
        number : int
            Runs of a repeat, which are averaged.
        repeat : int
            How many times are measured; each is one entry of `BenchmarkResult.results`, in seconds per run.
        min_repeat_ms : float
            A repeat that is shorter goes on with more runs until so many milliseconds are measured. All of them count.
        limit_zero_time_iterations : int
            A repeat also ends after so many measurements of 0 seconds.
        cooldown_interval_ms : float
            Pause after repeats.
        repeats_to_cooldown : int
            After which: the first one, and each so many later.
        cache_flush_bytes : int
            Not 0: caches are emptied before each run, whatever the number.
        f_preproc : str or callable
            A function that `nestsmith.register_func` has registered: called with the arguments before each repeat.
            ``"cache_flush_cpu_non_first_arg"``: as `cache_flush_bytes`.

        Returns
        -------
        callable returning a `BenchmarkResult`

        Raises
        ------
        AttributeError
            If there is no such function.
        TypeError, ValueError
            If a number is none or too small, or `f_preproc` is unknown; it names the argument.
        """
        func, dev = self.get_function(func_name, True), _device(dev)

        def start(args):
            func(*args)
            dev.sync()

        def block(args, number, flush):
            if hasattr(func, "timed"):  # the engine's own loop and the device's timer
                return func.timed(args, number, flush)
            return time_calls(lambda: func(*args), dev, number, flush)

        return evaluator(start, block, number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms,
                         repeats_to_cooldown, cache_flush_bytes, f_preproc)

    def export_library(self, file_name, fcompile=None, *, addons=None, workspace_dir=None, **kwargs):
        """Writes the module to a library that `load_module` reads; see `OperatorModule.export_library`.
        Raises RuntimeError for a module that belongs to another.
        """
        raise RuntimeError(f"a {self.type_key!r} module cannot be exported on its own; export the module it belongs to")

    def __repr__(self):
        return f"Module({self.type_key}, {', '.join(sorted(self._functions))})"


class SourceModule(Module):
    """Device code below a host module."""

    def __init__(self, type_key, source):
        super().__init__(type_key)
        self._source = source

    def get_source(self, fmt=""):
        """The source text in the device's language."""
        return self._source


class _Operator:
    """A compiled operator as a function of NDArrays: inputs and outputs in the order in which they were given to
    build."""

    def __init__(self, manifest, binary):
        self._text = manifest
        self.manifest = json.loads(manifest)
        self._binary, self._loaded = binary, {}
        self.__name__ = self.manifest.get("name", self.manifest["entry"])

    def load(self, dev):
        """The program on a device."""
        if dev.device_type != _DEVICE_OF_KIND[self.manifest["target"]]:
            raise TVMValueError(f"{self.__name__} was built for {self.manifest['target']!r} and cannot run on {dev}")
        if dev not in self._loaded:
            self._loaded[dev] = dev.handle().load(self._binary, self._text)
        return self._loaded[dev]

    def prepare(self, args):
        """Checks shapes and types; returns (program, buffers)."""
        want = self.manifest["args"]
        if len(args) != len(want):
            raise TVMValueError(f"{self.__name__} takes {len(want)} arrays ({', '.join(a['name'] for a in want)}), "
                                f"{len(args)} were given")
        for i, (a, w) in enumerate(zip(args, want)):
            if not isinstance(a, NDArray):
                raise TypeError(f"argument {i} ({w['name']}) of {self.__name__} is {type(a).__name__}; make it an "
                                "array with nd.array")
            if a.dtype != w["dtype"]:
                raise TVMValueError(f"argument {i} ({w['name']}) of {self.__name__} has dtype {a.dtype}, expected "
                                    f"{w['dtype']}")
            shape = tuple(w.get("shape", a.shape))
            if a.shape != shape:
                raise TVMValueError(f"argument {i} ({w['name']}) of {self.__name__} has shape {a.shape}, expected {shape}")
        if not args:
            raise TVMValueError(f"{self.__name__} has no arguments")
        return self.load(args[0].device), [a.buffer for a in args]

    def __call__(self, *args):
        program, buffers = self.prepare(args)
        program.run(buffers)

    def timed(self, args, number, flush):
        """Mean seconds of `number` runs; flush: caches are emptied before each."""
        program, buffers = self.prepare(args)
        return program.time(buffers, number, flush)


class OperatorModule(Module):
    """One compiled operator. `source` is C, CUDA C or OpenCL C; `manifest` says how to run `binary`."""

    is_dso_exportable = True

    def __init__(self, source, manifest, binary, target=""):
        func = _Operator(manifest, binary)
        kind = func.manifest["target"]
        super().__init__("c", {func.__name__: func}, func.__name__)
        self.name = func.__name__
        self.source, self.manifest, self.binary, self.target = source, manifest, binary, str(target)
        if kind != "c":
            self.import_module(SourceModule(kind, source))

    def get_source(self, fmt=""):
        """C text on a CPU; for GPUs the text is in ``imported_modules[0]``."""
        return "" if self.imported_modules else self.source

    def export_library(self, file_name, fcompile=None, *, addons=None, workspace_dir=None, **kwargs):
        """Writes a library (``.so``) or an archive of objects (``.tar``) that `load_module` reads.

        Parameters
        ----------
        file_name : str or path
        fcompile : callable, optional
            ``fcompile(output, objects, **kwargs)`` that links, e.g. ``contrib.cc.create_shared`` or
            ``contrib.ndk.create_shared``.
            Its attribute `output_format` ("so" or "tar") decides the format.
        addons : list of str, optional
            More object files to link in.
        workspace_dir : str, optional
            Where intermediate files are kept; a temporary directory otherwise.
        **kwargs
            For `fcompile`.

        Raises
        ------
        RuntimeError
            If the linker fails.
        """
        with utils.tempdir() as work:
            linked = []
            for i, m in enumerate(self._merged()):
                folder = work.relpath(str(i))
                os.mkdir(folder)
                linked.append(m._as_object(folder, fcompile))
            blob, source, engine = self._stored()
            export_blob(file_name, blob, source, self.target, fcompile, linked + list(addons or []), workspace_dir, engine=engine,
                        own=self.name, **kwargs)  # fmt: skip

    def _host(self):
        return json.loads(self.manifest)["target"] == "c"

    def _merged(self):
        """The modules below this one that are linked into its library."""
        out = []
        for m in self.imported_modules:
            out += ([m] if m.is_dso_exportable else []) + (m._merged() if isinstance(m, OperatorModule) else [])
        return out

    def _stored(self):
        """(what a library says of it, its C text, the engine's target)"""
        blob = {"type": "operator", "manifest": self.manifest, "source": self.source, "target": self.target}
        if not self._host():
            blob["binary"] = base64.b64encode(self.binary).decode()
            return blob, "", None
        return blob, self.source + _core.isa_note(), Target(self.target or "llvm").engine()

    def _as_object(self, folder, fcompile):
        blob, source, engine = self._stored()
        return _compiled(os.path.join(folder, f"{self.name}"), blob, source, self.target, fcompile, engine, self.name)

    def save(self, file_name, fmt=""):
        """Writes an object file (``.o``), which `contrib.cc.create_shared` links with others into a library that `load_module` reads, or
        the source text. Raises RuntimeError for a format that is neither."""
        kind = fmt or os.path.splitext(os.fspath(file_name))[1][1:]
        if kind in ("ll", "bc", "s", "asm"):
            raise RuntimeError(f"there is no LLVM: a module is saved as an object (.o) or as its source text, not as .{kind}")
        if kind not in ("o", "obj"):
            return super().save(file_name, fmt)
        with utils.tempdir() as work:
            pathlib.Path(file_name).write_bytes(pathlib.Path(self._as_object(work.path, None)).read_bytes())
        return None


class StaticLibrary(Module):
    """An object file that is linked into the library of the module that imports it. Its functions are not called before."""

    is_dso_exportable, is_runnable = True, False

    def __init__(self, data, names):
        super().__init__("static_library", dict.fromkeys(names, _not_linked))
        self._data = data

    def _as_object(self, folder, fcompile):
        path = os.path.join(folder, f"{next(iter(self._functions), 'static')}.o")
        pathlib.Path(path).write_bytes(self._data)
        return path

    def save(self, file_name, fmt=""):
        """Writes the object file."""
        pathlib.Path(file_name).write_bytes(self._data)


def _not_linked(*args):
    raise RuntimeError("a static library is linked before it runs: import it into a module and export that one")


def load_static_library(path, func_names):
    """A module of an object file, with the names of its functions, to be imported into another module and exported with it."""
    return StaticLibrary(pathlib.Path(path).read_bytes(), list(func_names))


# ---- libraries: a shared object with the symbols nestsmith_blob and nestsmith_blob_size, JSON text that says what
# is inside; how they are sealed and checked is in library.py ----
_LOADERS: dict[str, Callable] = {}


def register_loader(type_name, load):
    """`load(library)` makes a module of a `library.Library` whose blob has this "type"; for "model", `load(path)` of a model file."""
    _LOADERS[type_name] = load


# names of files that hold models, weights, logs: a library under such a name misleads
_OTHERS = ".onnx", ".pt", ".pt2", ".pth", ".ckpt", ".bin", ".pb", ".tflite", ".safetensors", ".gguf", ".npz", ".npy", ".json", ".py", ".c"


def _check_name(file_name, fcompile):
    """Errors of a library's name that a linker would report in its own words, and a warning for a misleading one."""
    folder = os.path.dirname(os.path.abspath(file_name))
    if os.path.isdir(file_name):
        raise IsADirectoryError(f"{file_name!r} is a directory; give the name of a file, such as net.so")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write {file_name!r}: there is no directory {folder}")
    suffix = os.path.splitext(re.sub(r"(\.\d+)+$", "", file_name))[1]  # without a version: libnet.so.1.2
    if fcompile is None and suffix in _OTHERS:
        raise ValueError(f"{file_name!r}: a compiled network is written as a shared library (.so) or an archive of "
                         f"objects (.tar), not as {suffix}; the file would not be what its name says")
    if fcompile is None and suffix not in ("", ".so", ".dll", ".dylib", ".tar"):
        warnings.warn(f"{file_name!r} becomes a shared library, whatever its name says: call it .so, or .tar for an "
                      "archive of objects", stacklevel=4)


def _compiled(stem, blob, source, target, fcompile, engine, own):
    """The path of an object file (of a C file, where only `fcompile` can compile) of a program and what is said of it. own: the
    function's name, if the object may be linked with others."""
    described = json.dumps({**blob, "sealed": 1}).encode()
    data = described + b"\0" + library.ROOM
    rows = "\n".join(",".join(map(str, data[i : i + 32])) + "," for i in range(0, len(data), 32))
    name, also = "nestsmith_blob", ""
    if own and re.fullmatch(r"\w+", own):  # several objects in a library: each has a name of its own, the first one the plain one, too
        name = f"{library.OWN}{own}"
        also = "".join(f'extern const {t} __attribute__((weak, alias("{name}{end}")));\n'
                       for t, end in (("uint64_t nestsmith_blob_size", "_size"), ("unsigned char nestsmith_blob[]", "")))  # fmt: skip
    text = (f"{source}\n#include <stdint.h>\nconst uint64_t {name}_size = {len(described)}u;\nconst unsigned char "
            f"{name}[] = {{\n{rows}\n}};\n{also}")
    pathlib.Path(stem + ".c").write_text(text)
    compiler = cc.compiler_for(target, fcompile)
    if compiler is None:
        return stem + ".c"
    cc.compile_object(stem + ".o", stem + ".c", cc=compiler, target=engine)
    return stem + ".o"


@contextlib.contextmanager
def whole_file(path, own=True):
    """Where a file is written that is to be whole or not there: beside it, under a name that becomes its own at the end. Other people's
    compilers (not `own`) and what is no plain file get the path itself."""
    if not own or os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
        yield path
        return
    beside = f"{path}.part-{os.getpid()}"
    try:
        yield beside
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def _linker(target):
    """Links for the machine that the target names (option `mtriple`)."""
    compiler = Target(target).cross_compiler if target else None
    return cc.cross_compiler(compiler) if compiler else cc.create_shared


def export_blob(file_name, blob, source="", target="", fcompile=None, addons=None, workspace_dir=None, engine=None,
                own="", **kwargs):
    """Compiles `source` (C) together with a blob (anything JSON can hold) into a library; see
    `OperatorModule.export_library`. engine: `source` is a program of this target of the engine; None: data alone."""
    file_name = os.fspath(file_name)
    _check_name(file_name, fcompile)
    ours = fcompile in (None, tar.tar, cc.create_shared)
    if fcompile is None:
        fcompile = tar.tar if file_name.endswith(".tar") else _linker(target)
    form = getattr(fcompile, "output_format", "so")
    work = utils.tempdir() if workspace_dir is None else utils.tempdir(workspace_dir, keep_for_debug=True)
    objects = [_compiled(work.relpath("nestsmith_lib"), blob, source, target, fcompile, engine, own)]
    if fcompile is tar.tar:
        pathlib.Path(work.relpath(library.MEMBER)).write_bytes(library.ROOM)
        objects.insert(0, work.relpath(library.MEMBER))
    out = file_name if not file_name.endswith(".tar") or form == "tar" else file_name[:-4]
    with whole_file(out, ours) as into:
        fcompile(into, objects + list(addons or []), **kwargs)
        if os.path.isfile(into):
            library.seal(into)


class LibraryModule(OperatorModule):
    """The functions of a library file; that of the object that was linked first can be called without a name."""

    is_dso_exportable = False

    def __init__(self, parts):
        first = parts[0]
        super().__init__(first.source, first.manifest, first.binary, first.target)
        self.type_key, self.parts = "library", parts
        self._functions = {p.name: p[p.name] for p in parts}
        self.imported_modules = [m for p in parts for m in p.imported_modules]

    def get_source(self, fmt=""):
        """C text of all functions."""
        return "\n".join(filter(None, (p.get_source(fmt) for p in self.parts)))

    def export_library(self, file_name, fcompile=None, *, addons=None, workspace_dir=None, **kwargs):
        """Writes it again; see `OperatorModule.export_library`."""
        first, *others = (OperatorModule(p.source, p.manifest, p.binary, p.target) for p in self.parts)
        first.imported_modules += others
        first.export_library(file_name, fcompile, addons=addons, workspace_dir=workspace_dir, **kwargs)


def _load_operator(lib):
    parts = []
    for blob in lib.blobs():
        binary = base64.b64decode(blob["binary"]) if "binary" in blob else lib.image
        parts.append(OperatorModule(blob["source"], blob["manifest"], binary, blob.get("target", "")))
    return LibraryModule(parts)


register_loader("operator", _load_operator)


def load_module(path, fmt=""):
    """The module of a file written by `export_library`: a library, or a model file (``.nsm``). Objects (``.o``) and archives (``.tar``) are
    linked first, in a temporary folder.

    The file is read once and checked: checksum and length, headers, and whether this processor has the instructions that
    it needs. Later changes of the file have no effect.

    Raises `ValueError` if the file is missing, `TVMValueError` if it is damaged or something else, `TVMError` if it was made
    for another machine or processor.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        what = "it is a directory" if os.path.isdir(path) else "there is no such file"
        raise ValueError(f"cannot load {path!r}: {what}")
    try:
        found = files.kind_of(path)
        if found == files.NETWORK:
            return _LOADERS["model"](path)
        suffix = os.path.splitext(path)[1][1:]  # of what is none of these: for the error that its name lets expect
        kind = fmt or {files.LIBRARY: "so", files.OBJECT: "o", files.ARCHIVE: "tar"}.get(found, suffix)
        if kind in ("o", "tar"):
            with utils.tempdir() as work:
                linked, objects = work.relpath("library.so"), [path]
                if kind == "tar":
                    os.mkdir(work.relpath("objects"))
                    objects = library.read_archive(path, work.relpath("objects"))
                cc.create_shared(linked, objects)
                lib = library.read(linked, path)
        else:
            lib = library.read(path)
    except OSError as e:
        raise TVMValueError(f"cannot load {path!r}: {e}") from None
    if lib.blob.get("type") not in _LOADERS:
        raise TVMValueError(f"{path!r} holds a {lib.blob.get('type')!r}, which this version cannot load")
    return _LOADERS[lib.blob["type"]](lib)


def system_lib(symbol_prefix=""):
    """Modules linked into the program itself; there are none. Raises RuntimeError."""
    raise RuntimeError("no module is linked into this program; use load_module(path)")


def enabled(target):
    """Whether programs for a kind of target can be compiled and run here: there is a compiler and a device."""
    kind = str(target).split()[0]
    kind = {"nvptx": "cuda", "gpu": "cuda", "cl": "opencl"}.get(kind, kind)
    number = {"cuda": 2, "opencl": 4, "llvm": 1, "c": 1, "cpu": 1}.get(kind)
    return number is not None and bool(_core.build_available(kind)[0]) and bool(_core.device_exists(number, 0)[0])
