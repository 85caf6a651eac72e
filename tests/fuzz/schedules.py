"""Random schedules of tiny DAGs for the fuzz test: legal step sequences, drawn from a seed."""

import random

from nestsmith import _core, te

UNROLL, VECTORIZE, PARALLEL, VTHREAD, BLOCK_X, THREAD_X = 1, 2, 3, 4, 5, 6
SPACE, REDUCE = 0, 1


# ---- DAGs ----


def zero():
    return te.const(0.0, "float32")


def relu_of(x, name="relu"):
    return te.compute(x.shape, lambda *i: te.max(x[i], zero()), name=name)


def chain(r):
    n, m = r.choice([(7, 6), (8, 8), (5, 12)])
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    c = te.compute((n, m), lambda i, j: a[i, j] + b[j], name="C")
    return [a, b, relu_of(te.compute((n, m), lambda i, j: c[i, j] * a[i, j], name="D"))]


def matmul(r, tail=None):
    n, m, k = r.choice([(8, 8, 8), (7, 9, 5), (16, 4, 12), (6, 10, 8)])
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    x = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, x] * b[x, j], axis=x), name="C")
    return [a, b, relu_of(c) if (r.random() < 0.5 if tail is None else tail) else c]


def conv(r):
    h, ci, co, s = r.choice([(6, 3, 4, 1), (5, 2, 6, 1), (8, 4, 4, 2)])
    a, w = te.placeholder((h, h, ci), name="A"), te.placeholder((3, 3, ci, co), name="W")
    pad = te.compute(
        (h + 2, h + 2, ci),
        lambda y, x, c: te.if_then_else(te.all(y >= 1, y < h + 1, x >= 1, x < h + 1), a[y - 1, x - 1, c], zero()),
        name="pad",
    )
    ry, rx, rc = (
        te.reduce_axis((0, 3), name="ry"),
        te.reduce_axis((0, 3), name="rx"),
        te.reduce_axis((0, ci), name="rc"),
    )
    o = (h - 1) // s + 1
    c = te.compute(
        (o, o, co),
        lambda y, x, f: te.sum(pad[y * s + ry, x * s + rx, rc] * w[ry, rx, rc, f], axis=[ry, rx, rc]),
        name="conv",
    )
    return [a, w, relu_of(c) if r.random() < 0.5 else c]


def rowsum(r):
    n, k = r.choice([(5, 16), (8, 12), (3, 33)])
    a = te.placeholder((n, k), name="A")
    x = te.reduce_axis((0, k), name="k")
    s = te.compute((n,), lambda i: te.sum(a[i, x], axis=x), name="S")
    if r.random() < 0.5:
        return [a, s]
    return [a, te.compute((n, k), lambda i, j: a[i, j] - s[i], name="D")]


def pool(r):
    h, c = r.choice([(6, 4), (7, 3)])
    a = te.placeholder((h, h, c), name="A")
    ry, rx = te.reduce_axis((0, 2), name="ry"), te.reduce_axis((0, 2), name="rx")
    return [
        a,
        te.compute((h // 2, h // 2, c), lambda y, x, f: te.max(a[y * 2 + ry, x * 2 + rx, f], axis=[ry, rx]), name="P"),
    ]


DAGS = {"chain": chain, "matmul": matmul, "conv": conv, "rowsum": rowsum, "pool": pool}


# ---- schedules ----


class Builder:
    """Applies steps to a state and remembers those that were accepted."""

    def __init__(self, dag, rng):
        self.state, self.r, self.steps = _core.State(dag), rng, []

    def try_(self, *step):
        try:
            self.state.apply(*step)
        except ValueError:
            return False
        self.steps.append(step)
        return True

    def stages(self):
        return self.state.stages()

    def find(self, name):
        return next(i for i, s in enumerate(self.stages()) if s[0] == name)

    def iters(self, stage):
        return self.stages()[stage][3]

    def computes(self):
        return [i for i, s in enumerate(self.stages()) if s[1]]

    def factor(self, extent, most=8):
        """Mostly a divisor, sometimes any number."""
        extent = extent or 4
        divisors = [d for d in range(1, min(extent, most) + 1) if extent % d == 0]
        return self.r.choice(divisors) if self.r.random() < 0.7 else self.r.randint(1, min(most, extent + 1))

    def split(self, stage, it, parts):
        extent = self.iters(stage)[it][4]
        lengths = [self.factor(extent, 4) for _ in range(parts - 1)]
        return self.try_("SP", stage, it, extent if isinstance(extent, int) else 0, lengths, 1)

    def fuse_all(self, stage, first, n):
        return n < 2 or self.try_("FU", stage, list(range(first, first + n)))

    # -- CPU: a random walk --
    def cpu(self):
        r = self.r
        for _ in range(r.randint(2, 14)):
            stage = r.choice(self.computes())
            its = self.iters(stage)
            if not its or self.stages()[stage][2] == 1:
                continue
            it = r.randrange(len(its))
            kind = its[it][1]
            what = r.choice(
                [
                    "split",
                    "split",
                    "fuse",
                    "reorder",
                    "at",
                    "at",
                    "inline",
                    "unroll",
                    "vector",
                    "parallel",
                    "pragma",
                    "cache",
                    "write",
                    "rf",
                ]
            )
            if what == "split":
                self.split(stage, it, r.randint(2, 3))
            elif what == "fuse" and it + 1 < len(its) and its[it + 1][1] == kind:
                self.try_("FU", stage, [it, it + 1])
            elif what == "reorder":
                order = list(range(len(its)))
                r.shuffle(order)
                self.try_("RE", stage, order)
            elif what == "at":
                self.attach(stage)
            elif what == "inline" and stage != self.computes()[-1] and r.random() < 0.5:
                self.try_("CI", stage)
            elif what == "unroll":
                self.try_("AN", stage, it, UNROLL)
            elif what == "vector" and kind == SPACE and all(x[1] == SPACE or k < it for k, x in enumerate(its)):
                self.try_("AN", stage, it, VECTORIZE)
            elif what == "parallel" and kind == SPACE and self.stages()[stage][2] == 0:
                self.try_("AN", stage, it, PARALLEL)
            elif what == "pragma":
                self.try_("PR", stage, 0, f"auto_unroll_max_step${r.choice([4, 16, 64])}")
            elif what == "cache":
                self.cache_read(stage, "local")
            elif what == "write" and not any(s[2] for s in self.stages()):
                self.try_("CHW", stage, "local")
            elif what == "rf" and kind == REDUCE:
                self.try_("RF", stage, it, r.randint(0, 1))

    def attach(self, stage):
        later = [i for i in self.computes() if i > stage and self.iters(i)]
        if later:
            target = min(later)
            self.try_("CA", stage, target, self.r.randrange(len(self.iters(target))))

    def cache_read(self, reader, scope):
        sources = [i for i, s in enumerate(self.stages()) if i < reader and not s[1]]
        if sources:
            source = self.r.choice(sources)
            if self.try_("CHR", source, scope, [reader]) and self.r.random() < 0.7:
                its = self.iters(reader + 1)
                self.try_("CA", source + 1, reader + 1, self.r.randrange(len(its)))

    # -- GPU: every stage that stays becomes a kernel or is placed inside one --
    def gpu(self):
        r = self.r
        for stage in reversed(self.computes()):
            s = self.stages()[stage]
            if s[2] != 0:
                continue
            reduce = any(x[1] == REDUCE for x in s[3])
            if reduce and r.random() < 0.65 and self.tile(s[0]):
                continue
            if reduce and r.random() < 0.4 and self.cross_thread(self.find(s[0])):
                continue
            name = s[0]
            if not reduce and stage != self.computes()[-1] and r.random() < 0.4 and self.try_("CI", self.find(name)):
                continue
            self.bind_simple(self.find(name))

    def bind_simple(self, stage):
        n = sum(1 for x in self.iters(stage) if x[1] == SPACE)
        self.fuse_all(stage, 0, n)
        extent = self.iters(stage)[0][4]
        self.try_("SP", stage, 0, extent, [self.r.choice([4, 8, 16])], 1)
        self.try_("AN", stage, 0, BLOCK_X)
        self.try_("AN", stage, 1, THREAD_X)
        if self.r.random() < 0.3:
            self.try_("PR", stage, 0, "auto_unroll_max_step$16")

    def cross_thread(self, stage):
        its = self.iters(stage)
        n = sum(1 for x in its if x[1] == SPACE)
        self.fuse_all(stage, 0, n)
        self.fuse_all(stage, 1, len(its) - n)
        extent = self.iters(stage)[1][4]
        self.try_("SP", stage, 1, extent, [self.r.choice([2, 4, 8, 32, 6])], 1)
        if self.r.random() < 0.3:
            self.try_("AN", stage, 1, UNROLL)
        return self.try_("AN", stage, 2, THREAD_X) and self.try_("AN", stage, 0, BLOCK_X)

    def tile(self, name):
        """The multi-level tile of the sketch rules: S S S R R S R S, consumer fused, inputs through shared memory."""
        r = self.r
        stage = self.find(name)
        consumers = [i for i in self.computes() if i > stage and self.stages()[i][2] == 0]
        direct = name in ("C", "conv") and consumers and self.stages()[consumers[0]][0] == "relu"
        if not direct:
            if not self.try_("CHW", stage, "local"):
                return False
            name, out = f"{name}.local", name
        else:
            out = "relu"
        stage = self.find(name)
        its = self.iters(stage)
        ns, nr = sum(1 for x in its if x[1] == SPACE), sum(1 for x in its if x[1] == REDUCE)
        first = len(self.steps)
        for i in range(ns):
            at = 5 * i
            extent = self.iters(stage)[at][4]
            vt, th = (r.choice([1, 1, 2]), r.choice([1, 2, 4])) if r.random() < 0.9 else (r.choice([1, 3]), 2)
            self.try_("SP", stage, at, extent, [vt, th, r.choice([1, 2]), r.choice([1, 1, 2])], 1)
        for i in range(nr):
            at = 5 * ns + 3 * i
            extent = self.iters(stage)[at][4]
            self.try_("SP", stage, at, extent, [self.factor(extent, 4), self.factor(extent, 2)], 1)
        s = [[5 * i + k for i in range(ns)] for k in range(5)]
        q = [[5 * ns + 3 * i + k for i in range(nr)] for k in range(3)]
        self.try_("RE", stage, s[0] + s[1] + s[2] + q[0] + q[1] + s[3] + q[2] + s[4])
        o = self.find(out)
        for i in range(ns):
            self.try_("FSP", o, 4 * i, first + i, 3)
        self.try_("RE", o, [4 * i + k for k in range(4) for i in range(ns)])
        self.try_("FU", o, list(range(ns))) if ns > 1 else None
        self.try_("FU", o, list(range(1, 1 + ns))) if ns > 1 else None
        self.try_("FU", o, list(range(2, 2 + ns))) if ns > 1 else None
        self.try_("AN", o, 0, BLOCK_X)
        self.try_("AN", o, 1, VTHREAD)
        self.try_("AN", o, 2, THREAD_X)
        if not self.try_("CA", self.find(name), o, 2):
            return True
        if r.random() < 0.85:
            self.shared_inputs(name, out, 3 * ns + nr - 1)
        if r.random() < 0.5:
            self.try_("PR", self.find(name), 0, f"auto_unroll_max_step${r.choice([16, 64, 512])}")
        if r.random() < 0.3:
            o = self.find(out)
            self.try_("AN", o, len(self.iters(o)) - 1, VECTORIZE)
        return True

    def shared_inputs(self, name, out, at):
        r = self.r
        threads = self.iters(self.find(out))[2][4]
        for i in range(self.find(name) - 1, -1, -1):
            stage = self.find(name)
            if i >= stage or self.stages()[i][2] != 0:
                continue
            source = self.stages()[i][0]
            if not self.try_("CHR", i, "shared", [stage]):
                continue
            if not self.try_("CA", i + 1, self.find(name), at):
                continue
            self.fuse_all(i + 1, 0, len(self.iters(i + 1)))
            vec = r.choice([1, 1, 2, 4])
            self.try_("SP", i + 1, 0, 0, [threads or 4, vec], 1)
            self.try_("AN", i + 1, 1, THREAD_X)
            self.try_("AN", i + 1, 2, VECTORIZE)
            if r.random() < 0.2:
                self.try_("SA", i + 1, 0, 32, 4)
            if self.stages()[i][1] and source == "pad" and r.random() < 0.8:
                self.try_("CI", i)


def draw(seed, gpu):
    """Returns (name, dag, state, steps) of one random schedule; the same for the same seed."""
    r = random.Random(f"{seed}-{gpu}")
    name = r.choice(list(DAGS))
    dag = _core.ComputeDAG(DAGS[name](r))
    b = Builder(dag, r)
    b.gpu() if gpu else b.cpu()
    return name, dag, b.state, b.steps
