"""Parts of TVM that are not here: whoever asks for one is told what there is instead.

`INSTEAD` names parts of TVM that are missing as a whole. For the other public names of TVM v0.14, which ``_tvm_names.txt.gz`` lists by module,
`WAYS` says what to do about anything that a module lacks. The longest name counts. Both serve attributes (an AttributeError, so that
``hasattr`` says no) and imports (a ModuleNotFoundError). Modules get a ``__getattr__`` when they are loaded, unless they have their own.
"""

import functools
import gzip
import importlib.machinery
import pathlib
import sys

__all__ = ["attribute_error", "hint", "names"]

_RUN = "compile with relay.build and run with nestsmith.contrib.graph_executor.GraphModule"
_LIBRARIES = "operators are compiled, not taken from libraries: give the operator as tensors (te) or in a network, and tune it with auto_scheduler"
_TARGETS = "programs are made for CPUs, CUDA and OpenCL (nestsmith.target.Target('llvm'), 'cuda', 'opencl')"
_NO_BYOC = "subgraphs are not handed to other compilers; nestsmith.compile runs whole networks, and PyTorch can run the rest of a model"
_NO_SCRIPT = "write computations with nestsmith.te, and loops by hand with tir.ir_builder"
_SCHEDULES = "schedules of te are made with te.create_schedule, by auto_scheduler, or by AutoTVM's templates"

INSTEAD = {
    "nestsmith.meta_schedule": "tune with nestsmith.auto_scheduler",
    "nestsmith.micro": _TARGETS,
    "nestsmith.tir.Schedule": _SCHEDULES,
    "nestsmith.relay.quantize": "quantize with PyTorch or onnxruntime and import the quantized network (relay.frontend)",
}

WAYS = {
    "nestsmith": f"{_TARGETS}; networks are compiled with nestsmith.compile or relay.build, operators with nestsmith.build",
    "nestsmith.arith": "indices are simplified and bounded inside the engine; arith.Analyzer simplifies expressions",
    "nestsmith.auto_scheduler": "tasks, searches and logs are in nestsmith.auto_scheduler itself: SearchTask, TaskScheduler, load_records",
    "nestsmith.autotvm": "tasks, tuners and records are in nestsmith.autotvm itself: task.create, tuner, record",
    "nestsmith.contrib": _LIBRARIES,
    "nestsmith.contrib.debugger": "contrib.debugger.debug_executor times and shows the operators of a network",
    "nestsmith.contrib.download": "download files yourself, for example with urllib.request, and give their paths",
    "nestsmith.contrib.ethosu": _TARGETS,
    "nestsmith.contrib.micro": _TARGETS,
    "nestsmith.driver": "nestsmith.build and nestsmith.lower compile operators, python -m nestsmith networks",
    "nestsmith.ir": "networks are nestsmith.relay's expressions, expressions nestsmith.tir's",
    "nestsmith.micro": _TARGETS,
    "nestsmith.parser": "relay.parse and relay.fromtext read networks as text",
    "nestsmith.relax": "import PyTorch and ONNX models with relay.frontend, or give them to nestsmith.compile",
    "nestsmith.relay": "operators that relay lacks are made of those that it has, or of te with relay.op.registry.register",
    "nestsmith.relay.analysis": "relay.expr_functor.ExprVisitor walks a network; relay.build checks it",
    "nestsmith.relay.backend": _RUN,
    "nestsmith.relay.collage": _NO_BYOC,
    "nestsmith.relay.dataflow_pattern": "relay.expr_functor.ExprMutator rewrites networks",
    "nestsmith.relay.frontend": "ONNX and PyTorch models are imported whole (relay.frontend.from_onnx, from_pytorch); export others to ONNX",
    "nestsmith.relay.op.contrib": _NO_BYOC,
    "nestsmith.relay.qnn": "quantized ONNX and PyTorch networks are imported as integer operators (relay.frontend)",
    "nestsmith.relay.quantize": "quantize with PyTorch or onnxruntime and import the quantized network (relay.frontend)",
    "nestsmith.relay.testing": "relay.testing has networks (resnet, mobilenet, ...) and create_workload",
    "nestsmith.relay.transform": "relay.build applies its passes; relay.transform has those that scripts call, and function_pass for others",
    "nestsmith.rpc": "devices of other machines are lent by a tracker: rpc.connect_tracker(host, port).request(key)",
    "nestsmith.runtime": "arrays are nestsmith.nd's, programs nestsmith.runtime.Module's; runtime.load_module reads exported ones",
    "nestsmith.script": _NO_SCRIPT,
    "nestsmith.target": _TARGETS,
    "nestsmith.te": "tensors are made with te.compute, te.scan and te.extern; " + _SCHEDULES,
    "nestsmith.testing": "nestsmith.testing has assert_allclose, parameter, parametrize_targets and the marks requires_llvm, requires_cuda, ...",
    "nestsmith.tir": _NO_SCRIPT,
    "nestsmith.tir.transform": "nestsmith.lower applies the engine's own passes; prim_func_pass makes one of yours, with tir.stmt_functor",
    "nestsmith.topi": "operators that topi lacks are written with te.compute and scheduled by auto_scheduler",
    **{f"nestsmith.topi.{t}": _SCHEDULES for t in ("x86", "cuda", "generic", "arm_cpu", "vision")},
}  # fmt: skip


_PACKAGE = __name__.partition(".")[0]


@functools.cache
def names():
    """Public names of TVM v0.14 with the package's name in front, modules among them."""
    text = gzip.decompress((pathlib.Path(__file__).parent / "_tvm_names.txt.gz").read_bytes()).decode()
    found = set()
    for module, *inside in map(str.split, text.splitlines()):
        full = _PACKAGE if module == "." else f"{_PACKAGE}.{module}"
        found.update([full, *(f"{full}.{name}" for name in inside)])
    return frozenset(found)


def hint(full):
    """What there is instead of a name of TVM; "" for other names."""
    parts = full.split(".")
    places = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
    if full not in WAYS and not any(p in INSTEAD for p in places) and full not in names():
        return ""
    return next((table[p] for p in places for table in (INSTEAD, WAYS) if p in table), "")


def attribute_error(module, name):
    """The AttributeError of a module that lacks a name."""
    way = "" if name.startswith("_") else hint(f"{module}.{name}")
    return AttributeError(f"{module}.{name} is not there yet: {way}" if way else f"module {module!r} has no attribute {name!r}")


def _missing(module, name):
    raise attribute_error(module, name)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module and lets it say what it lacks."""

    def exec_module(self, module):
        super().exec_module(module)
        vars(module).setdefault("__getattr__", functools.partial(_missing, module.__name__))


class _Finder:
    """Asked first, for modules of the package."""

    @staticmethod
    def find_spec(full, path=None, target=None):
        if not full.startswith(_PACKAGE + "."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(full, path, target)
        if spec is None and (way := hint(full)):
            # without a name: `from nestsmith import autotvm` would drop the text
            raise ModuleNotFoundError(f"{full} is not there yet: {way}")
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader.__class__ = _Loader  # the loader of files, with one method more
        return spec


if not any(getattr(f, "__module__", None) == __name__ for f in sys.meta_path):
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
