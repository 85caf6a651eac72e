"""What importing a model may take: bytes of values computed meanwhile, nodes, seconds.

A model comes from strangers, and a few bytes of it can stand for terabytes (`ConstantOfShape`, `Expand`, chains of `Tile`), for 2^30
nodes (functions that call each other twice) or for hours. Importers open a budget with :func:`importing`; whatever makes values or
nodes charges it before it makes them. Outside of :func:`importing` nothing is counted.
"""

import contextlib
import contextvars
import math
import os
import threading
import time
import weakref

from .. import check

__all__ = ["LIMITS", "Exceeded", "active", "computed_in_time", "hold", "importing", "node", "nodes_fit", "own", "room", "times"]

# name: (default, what is counted)
LIMITS = {
    "bytes": (1 << 30, "bytes of values that depend on constants alone"),
    "nodes": (1_000_000, "nodes"),
    "seconds": (600, "seconds of importing"),
}
_SMALL = 1 << 12  # arrays of fewer bytes are not counted: their nodes are
_PER_WEIGHT = 8  # a model with weights may hold this multiple of their bytes in addition: the weights, and copies in other types and layouts
_CURRENT: contextvars.ContextVar = contextvars.ContextVar("nestsmith_import_budget", default=None)


class Exceeded(ValueError):
    """Importing a model takes more than is allowed."""


class _Budget:
    def __init__(self, most):
        self.most, self.used, self.begin = most, dict.fromkeys(LIMITS, 0), time.monotonic()
        self.held: dict = {}  # weak references to large values, by the id of each reference

    def charge(self, name, more):
        self.used[name] += more
        if self.used[name] > self.most[name]:
            raise _over(name, self.used[name], self.most[name])

    def let_go(self, ref):
        self.used["bytes"] -= self.held.pop(id(ref), (None, 0))[1]

    def seconds_left(self):
        left = self.begin + self.most["seconds"] - time.monotonic()
        if left <= 0:
            raise _over("seconds", round(self.most["seconds"] - left, 1), self.most["seconds"])
        return left


def _over(name, value, most):
    return Exceeded(f"{value} {LIMITS[name][1]}; allowed are {most} (limit {name!r}). If the model is meant to be so "
                    f"large, allow more with limits={{{name!r}: ...}} or NESTSMITH_IMPORT_{name.upper()}")  # fmt: skip


def _chosen(limits):
    """The bounds in force: of the keyword, else of the environment, else the defaults."""
    if not isinstance(limits or {}, dict):
        raise TypeError(f"limits is {limits!r}; it must be a dictionary with any of {', '.join(LIMITS)}")
    wrong = [k for k in limits or () if k not in LIMITS]
    if wrong:
        raise ValueError(f"limits has {wrong[0]!r}; there are {', '.join(LIMITS)}")
    most = {}
    for name, (default, _) in LIMITS.items():
        variable = f"NESTSMITH_IMPORT_{name.upper()}"
        given = (limits or {}).get(name)
        if given is None and os.environ.get(variable):
            try:
                given = float(os.environ[variable])
            except ValueError:
                raise ValueError(f"{variable} is {os.environ[variable]!r}; it must be a number") from None
        most[name] = default if given is None else check.number(f"limits[{name!r}]", given, 0)
    return most


@contextlib.contextmanager
def importing(limits=None):
    """Counts what is made inside; an importer inside of another one shares its budget."""
    if _CURRENT.get() is not None:
        yield
        return
    token = _CURRENT.set(_Budget(_chosen(limits)))
    try:
        yield
    except MemoryError as e:
        if e.args:
            raise
        raise MemoryError("importing the model takes more memory than this process can have; limits={'bytes': ...} ends it earlier") from e
    finally:
        _CURRENT.reset(token)


def active():
    """Whether a model is imported now."""
    return _CURRENT.get() is not None


def node(count=1):
    """Counts nodes, and looks at the clock. ValueError beyond a limit."""
    b = _CURRENT.get()
    if b is not None:
        b.charge("nodes", count)
        b.seconds_left()


def nodes_fit(count):
    """ValueError if `count` more nodes are beyond the budget."""
    b = _CURRENT.get()
    if b is not None and b.used["nodes"] + count > b.most["nodes"]:
        raise _over("nodes", b.used["nodes"] + count, b.most["nodes"])


def times(count):
    """``range(count)``, where a number of the model decides how many nodes are made. ValueError if they are beyond the budget."""
    nodes_fit(count)
    return range(count)


def room(shape, dtype):
    """`shape`, an array of which is about to be made. ValueError if it does not fit into the budget."""
    b = _CURRENT.get()
    if b is not None:
        b.seconds_left()
        size = math.prod(int(d) for d in shape) * check.dtype_bytes(str(dtype))
        if b.used["bytes"] + size > b.most["bytes"]:
            raise _over("bytes", b.used["bytes"] + size, b.most["bytes"])
    return shape


def own(size):
    """Bytes of the model's own weights: values computed from them may be several times as large."""
    b = _CURRENT.get()
    if b is not None:
        b.most["bytes"] += _PER_WEIGHT * size


def hold(data):
    """`data` of a constant, which was made: its bytes count once, as long as they live. Constants have views of their arrays."""
    b = _CURRENT.get()
    made = data if data.base is None else data.base
    if b is None or data.nbytes < _SMALL or getattr(made, "base", made) is not None:
        return data
    if not any(id(ref) in b.held for ref in weakref.getweakrefs(made)):
        ref = weakref.ref(made, b.let_go)
        b.held[id(ref)] = ref, made.nbytes
        b.charge("bytes", made.nbytes)
    return data


def computed_in_time(f):
    """The value of ``f()``, a library's Python code without a check of the budget. It runs in a thread, which is abandoned when the time is over."""
    b = _CURRENT.get()
    if b is None:
        return f()
    done, out = threading.Event(), []

    def run():
        try:
            out.append((f(), None))
        except BaseException as e:  # noqa: BLE001 - raised again by the caller
            out.append((None, e))
        done.set()

    threading.Thread(target=run, daemon=True, name="nestsmith-import").start()
    if not done.wait(b.seconds_left()):
        b.seconds_left()
    value, error = out[0]
    if error is not None:
        raise error
    return value
