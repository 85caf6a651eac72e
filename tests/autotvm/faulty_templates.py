"""Templates each of whose configurations fails in its own way."""

from nestsmith import autotvm, te

FAULTS = ["none", "refused", "raises", "other", "beyond", "endless"]


@autotvm.template("tests/faults")
def faults(n):
    """On CPUs. How it fails: the value of knob ``fault``."""
    cfg = autotvm.get_config()
    cfg.define_knob("fault", FAULTS)
    fault = cfg["fault"].val
    if fault == "raises":
        raise KeyError("tile_z")
    a = te.placeholder((n,), name="A")
    if fault == "beyond":  # inputs of 1 and more: an index far beyond the end
        b = te.compute((n,), lambda i: a[(a[i] * 1e8).astype("int32")], name="B")
    elif fault == "endless":
        k = te.reduce_axis((0, 1 << 30), name="k")
        b = te.compute((n,), lambda i: te.max(a[(i + k * 7) % n], axis=k), name="B")
    else:
        b = te.compute((n,), lambda i: a[i] + (2.0 if fault == "other" else 1.0), name="B")
    cfg.add_flop(n)
    if fault == "refused":
        cfg.raise_error("no such tile")
    return te.create_schedule(b.op), [a, b]


@autotvm.template("tests/faults.gpu")
def faults_gpu(n, threads):
    """A block of so many threads."""
    cfg = autotvm.get_config()
    cfg.define_knob("threads", [threads])
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], cfg["threads"].val)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    cfg.add_flop(n)
    return s, [a, b]


@autotvm.template("tests/faults.local")
def faults_local(n, rows):
    """A thread that holds so many rows of sixteen numbers."""
    cfg = autotvm.get_config()
    cfg.define_knob("rows", [rows])
    a = te.placeholder((n, 16), name="A")
    b = te.compute((n, 16), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    kept = s.cache_write(b, "local")
    block, row = s[b].split(b.op.axis[0], cfg["rows"].val)
    thread, row = s[b].split(row, nparts=1)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    s[kept].compute_at(s[b], thread)
    cfg.add_flop(n * 16)
    return s, [a, b]


@autotvm.template("tests/quotients")
def quotients(n):
    """Fails where a divisor is 0, on processors that cannot divide by it."""
    cfg = autotvm.get_config()
    cfg.define_knob("k", [0, 1])
    a, b = (te.placeholder((n,), name=name, dtype="int32") for name in "AB")
    c = te.compute((n,), lambda i: te.floordiv(a[i], b[i]), name="C")
    cfg.add_flop(n)
    return te.create_schedule(c.op), [a, b, c]
