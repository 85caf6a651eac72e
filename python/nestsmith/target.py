"""Targets: what a program is made for, written as text (``"cuda -arch=sm_80"``), as a dict, or as a tag."""

import logging
import os
import re
import threading

from . import _core, check
from .contrib.cc import compiler_for
from .runtime.device import device as make_device

__all__ = ["codegen", "Target", "TargetKind", "cuda", "mali", "adreno", "arm_cpu", "intel_graphics", "llvm", "create", "list_tags"]

logger = logging.getLogger("nestsmith")

_COMMON = {"keys": list, "device": str, "model": str, "libs": list, "host": object, "tag": str, "system-lib": int,
           "runtime": str, "fast_math": str, "from_device": int}
_GPU = {"max_num_threads": int, "thread_warp_size": int, "max_threads_per_block": int,
        "max_shared_memory_per_block": int, "registers_per_block": int, "max_block_size_x": int,
        "max_block_size_y": int, "max_block_size_z": int}
_CPU = {"mcpu": str, "march": str, "mattr": list, "mtriple": str, "mfloat-abi": str, "mabi": str, "num-cores": int,
        "opt-level": int, "fast-math": int, "fast-math-nnan": int, "fast-math-ninf": int, "fast-math-nsz": int,
        "fast-math-arcp": int, "fast-math-contract": int, "fast-math-reassoc": int, "unpacked-api": int,
        "interface-api": str, "link-params": int, "workspace-byte-alignment": int, "constants-byte-alignment": int,
        "vector-width": int}
# kind: (device type, default keys, options, defaults)
_KINDS = {
    "cuda": (2, ("cuda", "gpu"), {**_GPU, "arch": str, "mcpu": str, "l2_cache_size_bytes": int},
             {"max_num_threads": 1024, "thread_warp_size": 32}),
    "opencl": (
        4,
        ("opencl", "gpu"),
        {**_GPU, "max_function_args": int, "texture_spatial_limit": int, "texture_depth_limit": int},
        {"max_num_threads": 256, "max_threads_per_block": 256, "max_shared_memory_per_block": 16384,
         "thread_warp_size": 1, "max_function_args": 128, "texture_spatial_limit": 16384},
    ),
    "llvm": (1, ("cpu",), _CPU, {}),
    "c": (1, ("cpu",), _CPU, {}),
}
_QUIET_DEFAULTS = {
    "max_threads_per_block",
    "max_shared_memory_per_block",
    "max_function_args",
    "texture_spatial_limit",
}  # OpenCL's, not printed
_FAST_MATH = {"precise": 0, "reference": 1, "aggressive": 2}

_GPU_TAGS = {
    "sm_60": ("tesla-p100",),
    "sm_61": ("tesla-p40", "tesla-p4", "geforce-gtx-1080-ti", "geforce-gtx-1080", "geforce-gtx-1070",
              "geforce-gtx-1060"),
    "sm_70": ("tesla-v100", "nvidia-v100"),
    "sm_72": ("jetson-agx-xavier",),
    "sm_75": ("tesla-t4", "nvidia-t4", "geforce-rtx-2080-ti", "geforce-rtx-2080", "geforce-rtx-2070",
              "geforce-rtx-2060"),
    "sm_80": ("nvidia-a100", "nvidia-a30"),
    "sm_86": ("geforce-rtx-3090", "geforce-rtx-3080", "geforce-rtx-3070", "geforce-rtx-3060", "nvidia-a40",
              "nvidia-a10", "nvidia-a10g"),
    "sm_87": ("jetson-agx-orin-64gb", "jetson-agx-orin-32gb"),
    "sm_89": ("geforce-rtx-4090", "geforce-rtx-4080", "geforce-rtx-4070", "nvidia-l4", "nvidia-l40", "nvidia-l40s"),
    "sm_90": ("nvidia-h100", "nvidia-h200"),
    "sm_100": ("nvidia-b200",),
    "sm_120": ("geforce-rtx-5090", "geforce-rtx-5080"),
}
_TAGS = {
    f"nvidia/{name}": {"kind": "cuda", "keys": ["cuda", "gpu"], "arch": arch, "max_shared_memory_per_block": 49152,
                       "max_threads_per_block": 1024, "thread_warp_size": 32, "registers_per_block": 65536}
    for arch, names in _GPU_TAGS.items()
    for name in names
}
_TAGS["raspberry-pi/4b-aarch64"] = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72",
                                    "mattr": ["+neon"], "num-cores": 4}


def list_tags():
    """The registered tags: a dict from name to the options it stands for."""
    return {k: dict(v) for k, v in _TAGS.items()}


class codegen:
    """What scripts ask of the compiler of ``"llvm"``, which is the system's C compiler here."""

    @staticmethod
    def llvm_version_major(allow_none=False):
        """0, or None with `allow_none`: there is no LLVM."""
        return None if allow_none else 0


class TargetKind:
    """The kind of a target: `name` ("cuda", "opencl", "llvm", "c"), `device_type` (DLPack's number), `default_keys`."""

    def __init__(self, name):
        self.name = name
        self.device_type, keys, self.options, self.defaults = _KINDS[name]
        self.default_keys = list(keys)

    def __str__(self):
        return self.name

    def __repr__(self):
        return f"TargetKind({self.name!r})"

    def __eq__(self, other):
        return isinstance(other, TargetKind) and other.name == self.name

    def __hash__(self):
        return hash(self.name)


def _split(text):
    """Words of a target string. Quotes hold spaces together, a backslash takes the next character as it is."""
    words, word, quote, used = [], [], False, False
    i = 0
    while i < len(text):
        c = text[i]
        if c == "\\" and i + 1 < len(text):
            i += 1
            word.append(text[i])
            used = True
        elif c == "'":
            quote = not quote
            used = True
        elif c.isspace() and not quote:
            if used:
                words.append("".join(word))
            word, used = [], False
        else:
            word.append(c)
            used = True
        i += 1
    if quote:
        raise ValueError(f"target {text!r} has a quote that is not closed")
    if used:
        words.append("".join(word))
    return words


def _value(kind, name, value, type_):
    if type_ is list:
        items = value if isinstance(value, (list, tuple)) else str(value).split(",")
        return [str(v).strip() for v in items if str(v).strip()]
    if type_ is int:
        text = str(value).strip()
        if text.lower() in ("true", "false"):
            return int(text.lower() == "true")
        if not re.fullmatch(r"[+-]?\d+", text):
            raise ValueError(f"target option {name!r} of {kind!r} must be an integer, not {value!r}")
        return int(text)
    return str(value)


def _parse(text):
    """Options of a target string, as a dict with "kind"."""
    words = _split(text)
    if not words:
        raise ValueError('the target is empty; write for example "cuda" or "llvm"')
    if words[0].startswith("-"):
        raise ValueError(f'target {text!r} starts with an option; the kind comes first, for example "cuda -arch=sm_80"')
    out = {"kind": words[0]}
    i = 1
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("-") or not word.strip("-"):
            raise ValueError(f'target {text!r}: {word!r} is not an option; options start with "-"')
        name = word[2:] if word.startswith("--") else word[1:]
        if "=" in name:
            name, value = name.split("=", 1)
        elif i < len(words) and not words[i].startswith("-"):
            value = words[i]
            i += 1
        else:
            value = "1"
        if name in out:
            raise ValueError(f"target {text!r} gives option {name!r} twice")
        out[name] = value
    return out


def _option(name, default, doc):
    """A property of targets: the value of an option."""
    return property(lambda self: self.attrs.get(name, default), doc=doc)


class Target:
    """What a program is made for.

    Parameters
    ----------
    target : str, dict or Target
        Text such as ``"cuda -arch=sm_80"`` or ``"llvm -mcpu=skylake"``, a tag (``"nvidia/geforce-rtx-3070"``), a dict
        with
        a ``"kind"``, or JSON text of such a dict. ``"llvm"`` and ``"c"`` both mean the C compiler of this machine.
    host : the same, optional
        For what the host part is compiled.

    Raises
    ------
    ValueError
        For an unknown kind, tag or option; the message lists the valid names.
    TypeError
        If `target` is something else.
    """

    _scopes = threading.local()

    def __init__(self, target, host=None):
        tag = ""
        if isinstance(target, Target):
            options, tag = {"kind": target.kind.name, **target._given}, target.tag
            host = host if host is not None else target.host
        elif isinstance(target, dict):
            options = dict(target)
        elif isinstance(target, str):
            text = check.text("target", target).strip()
            if text.startswith("{"):
                options = check.json_of("target", text)
            elif text in _TAGS:
                options, tag = dict(_TAGS[text]), text
            else:
                options = _parse(text)
        else:
            raise TypeError(f"a target is a str, a dict or a Target, not {type(target).__name__}")
        for key in ("kind", "tag"):
            if not isinstance(options.get(key, ""), str):
                raise ValueError(f"target option {key!r} is {options[key]!r}; it must be a str")
        if "kind" not in options and options.get("tag") in _TAGS:
            options = {**_TAGS[options["tag"]], **options}
        self._setup(options, tag)
        host = host if host is not None else options.get("host")
        if not isinstance(host, (str, dict, Target, type(None))):
            raise ValueError(f"target option 'host' is {host!r}; it must be a target")
        self.host = None if host is None else host if isinstance(host, Target) else Target(host)

    def _setup(self, options, tag):
        name = options.get("kind")
        if name in ("cpu", "cl"):
            name = {"cpu": "llvm", "cl": "opencl"}[name]
        if name not in _KINDS:
            known = sorted(_KINDS) + sorted(_TAGS)
            raise ValueError(f"unknown target {name!r}; kinds are {', '.join(sorted(_KINDS))}, tags see "
                             f"target.list_tags(){check.did_you_mean(str(name), known)}")
        self.kind = TargetKind(name)
        valid = {**_COMMON, **self.kind.options}
        given = {}
        for key, value in options.items():
            if key == "kind":
                continue
            if key not in valid:
                raise ValueError(f"target {name!r} has no option {key!r}{check.did_you_mean(key, valid)}; options are "
                                 f"{', '.join(sorted(valid))}")
            if isinstance(value, str):
                check.text(f"target option {key!r}", value)
            if key not in ("host", "tag"):
                given[key] = _value(name, key, value, valid[key])
        self.tag = tag or str(options.get("tag", ""))
        if "from_device" in given:
            given = {**self._limits(given.pop("from_device")), **given}
        self._given = given
        self.keys = self._keys(given)
        self.attrs = {**self.kind.defaults, **{k: v for k, v in given.items() if k != "keys"}}
        if self.attrs.get("fast_math", "reference") not in _FAST_MATH:
            raise ValueError(f"target option 'fast_math' is {self.attrs['fast_math']!r}; allowed are "
                             f"{', '.join(_FAST_MATH)}")
        if name == "cuda" and "arch" not in self.attrs:
            self.attrs["arch"] = self._find_arch()
        arch = self.attrs.get("arch")
        if arch is not None and not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
            raise ValueError(f"target option 'arch' is {arch!r}; write for example sm_90")

    def _keys(self, given):
        keys = list(given.get("keys", ()))
        if given.get("device"):
            keys.append(given["device"])
        if not given.get("keys"):
            keys += self.kind.default_keys
        return list(dict.fromkeys(keys))

    def _limits(self, device_id):
        facts = _core.device_query(self.kind.device_type, device_id)
        if facts is None:
            raise ValueError(f"option from_device={device_id}: "
                             f"{_core.device_exists(self.kind.device_type, device_id)[1]}")
        if self.kind.device_type == 1:
            return {}
        out = {"max_num_threads": facts["max_threads_per_block"],
               "max_threads_per_block": facts["max_threads_per_block"],
               "max_shared_memory_per_block": facts["max_shared_per_block"], "thread_warp_size": facts["warp_size"]}
        if self.kind.name == "cuda":
            out["arch"] = f"sm_{facts['sm']}"
        return out

    @staticmethod
    def _find_arch():
        facts = _core.device_query(2, 0)
        if facts is not None:
            return f"sm_{facts['sm']}"
        known = _core.build_sm_range()
        arch = f"sm_{known[0]}" if known else "sm_75"
        if not getattr(Target._scopes, "warned", False):
            Target._scopes.warned = True
            logger.warning(
                'no CUDA device was found, so programs are made for %s; name another with "cuda -arch=sm_XX"', arch
            )
        return arch

    # ---- what it says ----
    model = _option("model", "unknown", 'The option `model`, "unknown" if not given.')
    arch = _option("arch", None, 'CUDA: "sm_90" and the like; else None.')
    mcpu = _option("mcpu", "", 'The option `mcpu`, "" if not given.')
    device_name = _option("device", "", 'The option `device` ("mali", ...), "" if not given.')
    max_num_threads = _option("max_num_threads", 1, "Threads per block that schedules may use.")
    thread_warp_size = _option("thread_warp_size", 1, "Threads that run in lock step.")
    max_shared_memory_per_block = _option("max_shared_memory_per_block", None,
                                          "Bytes of shared memory per block, or None where only the device knows.")

    @property
    def _capability(self):
        """CUDA: 90 for sm_90; else 0."""
        return int(re.search(r"\d+", self.arch or "sm_0").group()) if self.kind.name == "cuda" else 0

    def on_tensor_cores(self, dtype):
        """Whether programs for it may multiply factors of the type on tensor cores: CUDA, float16 and integers of 8 bits from compute
        capability 7.5 on, bfloat16 and float32 (in TF32) from 8.0 on."""
        return _core.on_tensor_cores(dtype, self._capability)

    @property
    def has_tensor_cores(self):
        """Whether there are such types: float16 is the first."""
        return self.on_tensor_cores("float16")

    @property
    def has_lane_products(self):
        """Whether programs for it may be products of float32 by lanes: CUDA from compute capability 7.0 on."""
        return _core.lane_products(self._capability)

    @property
    def foreign(self):
        """Whether its programs are for another machine's CPU (option `mtriple`)."""
        triple = str(self.attrs.get("mtriple", ""))
        return self.kind.device_type == 1 and bool(triple) and triple.split("-")[0] != os.uname().machine

    @property
    def cross_compiler(self):
        """The command that compiles programs of another machine's CPU (option `mtriple`); None if they are this machine's.

        Raises RuntimeError if it is not installed.
        """
        if not self.foreign:
            return None
        triple = str(self.attrs["mtriple"])
        found = compiler_for(f"llvm -mtriple={triple}", None)
        if found is None:
            raise RuntimeError(f"no compiler for {triple} was found; install {triple}-gcc (apt install gcc-{triple}) or clang")
        return found

    mattr = property(lambda self: list(self.attrs.get("mattr", [])), doc="The option `mattr`, a list.")
    libs = property(lambda self: list(self.attrs.get("libs", [])), doc="The option `libs`, a list.")

    @property
    def max_block_size_x(self):
        """Threads of a block along x that schedules may use."""
        return self.attrs.get("max_block_size_x", self.max_num_threads)

    def get_target_device_type(self):
        """DLPack's number of the device type: 1 CPU, 2 CUDA, 4 OpenCL."""
        return self.kind.device_type

    target_device_type = property(get_target_device_type)

    def engine(self, hardware=None, sm=None, overlap=0):
        """The target as the engine takes it, a ``_core.Target``.

        Parameters
        ----------
        hardware : sequence of 8 int, optional
            Hardware parameters in the order of ``HardwareParams``; without them the limits that every device of the kind has.
        sm : int, optional
            Another compute capability than `arch` says: 90 for sm_90.
        overlap : int
            1: kernels of CUDA wait by themselves for the launch before them, so that they may begin while it ends; 2: those whose slices
            are copied ahead let the next one begin, too, once half of them are done.

        Returns
        -------
        _core.Target
        """
        cuda = self.kind.name == "cuda"
        digits = re.search(r"\d+", self.attrs.get("arch", "") if cuda else "")
        return _core.Target(self.kind.name, hardware, sm=(sm or int(digits.group()) if digits else 0) if cuda else 0,
                            fast_math=_FAST_MATH[self.attrs.get("fast_math", "reference")],
                            mali=self.device_name == "mali", overlap=overlap,
                            cpu=str(self.attrs.get("mcpu", "")) if self.kind.device_type == 1 else "")

    def __str__(self):
        words = [self.kind.name, "-keys=" + ",".join(self.keys)]
        shown = {k: v for k, v in self.attrs.items() if not (k in _QUIET_DEFAULTS and self.kind.defaults.get(k) == v)}
        for key in sorted(shown):
            value = ",".join(shown[key]) if isinstance(shown[key], list) else str(shown[key])
            if " " in value or "'" in value or not value:
                value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
            words.append(f"-{key}={value}")
        return " ".join(words)

    def __repr__(self):
        return str(self)

    def export(self):
        """The target as a dict that `Target` accepts again; a host is included."""
        out = {"kind": self.kind.name, "keys": list(self.keys), **self.attrs, "tag": self.tag}
        if self.host is not None:
            out["host"] = self.host.export()
        return out

    def __eq__(self, other):
        return isinstance(other, Target) and str(self) == str(other) and str(self.host) == str(other.host)

    def __hash__(self):
        return hash(str(self))

    def __reduce__(self):
        return Target, (self.export(),)

    def with_host(self, host):
        """The same target with another host."""
        return Target(self, host)

    # ---- scopes ----
    def __enter__(self):
        stack = getattr(Target._scopes, "stack", None)
        if stack is None:
            stack = Target._scopes.stack = []
        stack.append(self)
        return self

    def __exit__(self, *exc):
        Target._scopes.stack.pop()

    @staticmethod
    def current(allow_none=True):
        """The target of the innermost ``with target:``; None without one, or `ValueError` if `allow_none` is false."""
        stack = getattr(Target._scopes, "stack", None)
        if stack:
            return stack[-1]
        if not allow_none:
            raise ValueError("no target is set; pass one or write `with Target(...):`")
        return None

    # ---- helpers ----
    @staticmethod
    def canon_target(target):
        """`target` as a Target; None stays None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(target, host=None, target_is_dict_key=True):
        """(target, host) as Targets, the host taken from the target where it is not given; None stays None."""
        target = Target.canon_target(target)
        host = Target.canon_target(host)
        if target is None:
            return None, host
        if host is None:
            host = target.host
        elif target.host is None or str(target.host) != str(host):
            target = target.with_host(host)
        return target, host

    @staticmethod
    def canon_multi_target_and_host(target, target_host=None):
        """A list with the one target given."""
        if isinstance(target, dict) and "kind" not in target:
            target = list(target.values())
        one = target[0] if isinstance(target, (list, tuple)) else target
        return [Target.canon_target_and_host(one, target_host)[0]]

    @staticmethod
    def from_device(device):
        """The target of a device that is present, with its limits filled in. Raises ValueError for a device that
        programs are not made for.
        """
        dev = make_device(device) if isinstance(device, str) else device
        kind = {1: "llvm", 2: "cuda", 4: "opencl"}.get(dev.device_type)
        if kind is None:
            raise ValueError(f"there is no target for {dev}")
        return Target({"kind": kind} if kind == "llvm" else {"kind": kind, "from_device": dev.device_id})

    @staticmethod
    def list_kinds():
        """Names of all kinds."""
        return sorted(_KINDS)


def create(target):
    """Same as ``Target(target)``."""
    return Target(target)


def cuda(model="unknown", arch=None, options=None):
    """A CUDA target for a model name and, if given, an architecture such as "sm_80"."""
    return Target(" ".join([f"cuda -model={model}" + (f" -arch={arch}" if arch else ""), *_options(options)]))


def _options(options):
    return [options] if isinstance(options, str) else list(options or ())


def mali(model="unknown", options=None):
    """An OpenCL target for ARM Mali GPUs."""
    return Target(" ".join([f"opencl -device=mali -model={model}", *_options(options)]))


def adreno(model="unknown", options=None):
    """An OpenCL target for Qualcomm Adreno GPUs."""
    return Target(" ".join([f"opencl -device=adreno -model={model}", *_options(options)]))


def intel_graphics(model="unknown", options=None):
    """An OpenCL target for Intel GPUs."""
    return Target(" ".join([f"opencl -device=intel_graphics -model={model} -thread_warp_size=16", *_options(options)]))


_ARM_TRIPLES = {"aarch64-linux-android": ("pixel2", "mate10", "mate10pro", "p20", "p20pro"),
                 "aarch64-linux-gnu": ("rk3399", "rasp4b64"), "armv7l-linux-gnueabihf": ("rasp3b",),
                 "armv8l-linux-gnueabihf": ("rasp4b",)}


def arm_cpu(model="unknown", options=None):
    """A CPU target for ARM boards; known models (rk3399, rasp4b64, ...) bring their compiler triple along."""
    triples = [f"-mtriple={triple} -mattr=+neon" for triple, models in _ARM_TRIPLES.items() if model in models]
    return Target(" ".join([f"llvm -keys=arm_cpu,cpu -device=arm_cpu -model={model}", *triples, *_options(options)]))


def llvm(options=None):
    """A CPU target."""
    return Target(" ".join(["llvm", *_options(options)]))


# ---- hardware parameters: what the search takes a machine for ----
TUNABLE = "llvm", "c", "cuda", "opencl"
CUDA_LIMITS = (49152, 1024, 32)  # shared bytes, threads, warp: the same on every GPU that is still supported


def _attr_int(target, *names):
    for name in names:
        v = target.attrs.get(name)
        if v is not None and int(v) > 0:
            return int(v)
    return 0


def device_limits(target):
    """(shared bytes, threads, warp size) of the OpenCL device 0, zeros where nothing is known: a Mali or an Adreno that a target names
    is another one's, on a board."""
    if target.device_name in ("mali", "adreno"):
        return 0, 0, 0
    try:
        dev = make_device("opencl", 0)
        if not dev.exist:
            return 0, 0, 0
        return dev.max_shared_memory_per_block or 0, dev.max_threads_per_block or 0, dev.warp_size or 0
    except (RuntimeError, ValueError):
        return 0, 0, 0


# Virtual threads of a schedule that is written by hand: it has as many as it says.
HAND_VTHREADS = 1 << 30
# Bytes of one thread's arrays. A driver reserves as much for every thread that a GPU can hold: 64 KiB are 17 GB on one of 132
# multiprocessors, and no program with more is fast.
HAND_LOCAL_BYTES = 64 << 10


def hand_vector_bytes(target):
    """The widest vector in a schedule that is written by hand: a float16 of OpenCL C, a float4 of CUDA, what a CPU's compiler
    takes apart."""
    return 16 if target.kind.name == "cuda" else 64


def default_hardware_params(target):
    """The eight default parameters of a target as a tuple. Raises `RuntimeError` if the target has no defaults."""
    kind = target.kind.name
    if kind not in TUNABLE:
        raise RuntimeError(f"target {kind!r} has no default hardware parameters; give "
                           "hardware_params=HardwareParams(...) all fields")
    device = str(target.attrs.get("device", ""))
    if target.kind.device_type == 1:
        return _core.hw_params_default(kind, False, False, 0, 0, 0, _attr_int(target, "num-cores") or _core.cpu_threads())
    if kind == "cuda":
        asked, fixed = (0, 0, 0), CUDA_LIMITS
    else:
        fixed, asked = (0, 0, 0), device_limits(target)
    given = (_attr_int(target, "max_shared_memory_per_block") if kind == "cuda" else 0,
             _attr_int(target, "max_threads_per_block", "max_num_threads"), _attr_int(target, "thread_warp_size"))
    if kind == "opencl":
        env = os.environ.get("NESTSMITH_OPENCL_WARP_SIZE") or os.environ.get("TVM_OPENCL_WARP_SIZE") or ""
        given = 0, given[1], int(env) if env.isdigit() else given[2]
        fixed = 32768, 256, 1
    shared, threads, warp = (a or g or f for a, g, f in zip(asked, given, fixed))
    return _core.hw_params_default(kind, device == "mali", device == "adreno", shared, threads, warp, 0)
