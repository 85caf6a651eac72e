"""Random te programs for the fuzz test, as text: a DAG, a schedule over all primitives and the list of arguments.

A program is a list of Python lines that use only ``te`` and ``tir``, so that what fails can be printed, run by hand and
shortened line by line. Everything is drawn from a seed. Lines that raise ValueError are kept apart: they say what was refused.
"""

import random

from nestsmith import te, tir

DTYPES = ["int32"] * 5 + ["float32"] * 5 + ["int64", "int8", "uint8", "float64", "int16"]
LIMIT = {"float32": 2**22, "float64": 2**50, "int64": 2**60, "int32": 2**29, "int16": 2**13, "int8": 2**5, "uint8": 2**6}
MOST_POINTS = 1500  # iterations of one definition


class Program:
    """Lines that have run, and the names that they have defined."""

    def __init__(self, lines=()):
        self.lines, self.refused, self.names = [], [], {"te": te, "tir": tir}
        for line in lines:
            self.do(line)

    def do(self, line):
        exec(line, self.names)  # noqa: S102 - the line is our own
        self.lines.append(line)

    def attempt(self, line):
        """Whether the schedule accepts it."""
        try:
            self.do(line)
        except ValueError as e:
            self.refused.append((line, str(e)))
            return False
        return True

    def __getitem__(self, name):
        return self.names[name]

    def text(self):
        return "\n".join(["from nestsmith import te, tir", *self.lines])


class Dag:
    """Draws definitions. A tensor is known by its name, shape, type and the largest magnitude that an element can have:
    numbers stay small enough to be exact in their type, so that every order of additions gives the same bits."""

    def __init__(self, program, rng):
        self.p, self.r, self.dtype = program, rng, rng.choice(DTYPES)
        self.wide = rng.random() < 0.05  # axes of 64 bits
        self.made, self.inputs, self.read = [], [], set()  # made: (name, shape, magnitude)
        self.reading, self.count = [], 0

    def name(self):
        self.count += 1
        return f"T{self.count}"

    def shape(self, rank=None):
        rank = self.r.choice([1, 1, 2, 2, 2, 3]) if rank is None else rank
        return tuple(self.r.choice([1, 2, 3, 4, 5, 6, 7, 8, 12] if rank < 3 else [1, 2, 3, 4, 5]) for _ in range(rank))

    def dims(self, shape):
        return f"({' '.join(f'te.const({d}, {chr(39)}int64{chr(39)}),' for d in shape)})" if self.wide else repr(shape)

    def placeholder(self, shape, dtype=None):
        n = self.name()
        self.p.do(f"{n} = te.placeholder({self.dims(shape)}, {dtype or self.dtype!r}, name={n!r})")
        self.inputs.append(n)
        return n, shape, 3

    def source(self, rank=None, dtype_matters=True):
        """A tensor to read: mostly a computed one, else an input, old or new."""
        found = [t for t in self.made if rank is None or len(t[1]) == rank]
        if found and self.r.random() < 0.75:
            t = found[-1] if self.r.random() < 0.6 else self.r.choice(found)
        else:
            t = self.placeholder(self.shape(rank))
        self.reading.append(t[0])
        return t

    def define(self, shape, axes, body, magnitude, *, before=(), outputs=1):
        """Adds ``T = te.compute(...)``; False if numbers could get too large or it would take too long."""
        if magnitude > LIMIT[self.dtype]:
            return False
        n = self.name()
        self.read.update(self.reading)
        for line in before:
            self.p.do(line)
        out = ", ".join([n, *[f"{n}_{k}" for k in range(1, outputs)]])
        self.p.do(f"{out} = te.compute({self.dims(shape)}, lambda {', '.join(axes)}: {body}, name={n!r})")
        for t in out.split(", "):
            self.made.append((t, tuple(shape), magnitude))
        return True

    def axes(self, n):
        return ["i", "j", "k", "l"][:n]

    def reduce_axes(self, extents, first=None):
        names, lines = [], []
        for k, e in enumerate(extents):
            n = f"r{self.count}_{k}"
            lo = self.r.choice([0, 0, 0, 0, 1]) if first is None and e > 1 else 0
            lines.append(f"{n} = te.reduce_axis(({lo}, {e}), name={n!r})")
            names.append(n)
        return names, lines

    def reducer(self):
        return self.r.choice(["te.sum", "te.sum", "te.sum", "te.max", "te.min"])

    # ---- definitions: each returns whether it has added one ----

    def elementwise(self):
        t, shape, m = self.source()
        a = self.axes(len(shape))
        at = f"{t}[{', '.join(a)}]" if a else f"{t}()"
        kind = self.r.randrange(6)
        if kind == 0:
            return self.define(shape, a, f"{at} * te.const(2, {self.dtype!r}) + te.const(1, {self.dtype!r})", 2 * m + 1)
        if kind == 1 and a:
            return self.define(shape, a, f"{at} + {self.r.choice(a)}.astype({self.dtype!r})", m + 12)
        if kind == 2:
            return self.define(shape, a, f"te.max({at}, te.const(0, {self.dtype!r}))", m)
        if kind == 3:
            low = "0" if self.dtype == "uint8" else "-2"
            body = f"te.min(te.max({at}, te.const({low}, {self.dtype!r})), te.const(2, {self.dtype!r}))"
            return self.define(shape, a, body, 2)
        if kind == 4 and a:
            cond = f"{self.r.choice(a)} {self.r.choice(['<', '>=', '=='])} {self.r.randint(0, 3)}"
            which = self.r.choice(["tir.Select", "te.if_then_else"])
            return self.define(shape, a, f"{which}({cond}, {at}, te.const(1, {self.dtype!r}))", max(m, 1))
        return self.define(shape, a, f"{at} - {at} * te.const(2, {self.dtype!r})", 3 * m)

    def binary(self):
        t, shape, m = self.source()
        a = self.axes(len(shape))
        if not a:
            return False
        kept = [k for k in range(len(a)) if self.r.random() < 0.7] or [0]
        same = [u for u in self.made if u[1] == tuple(shape[k] for k in kept) and u[0] != t]
        if same and self.r.random() < 0.6:
            u, _, mu = self.r.choice(same)
        else:
            u, _, mu = self.placeholder(tuple(shape[k] for k in kept))
        self.reading.append(u)
        op, top = self.r.choice([("+", m + mu), ("*", m * mu), ("-", m + mu)])
        return self.define(shape, a, f"{t}[{', '.join(a)}] {op} {u}[{', '.join(a[k] for k in kept)}]", top)

    def stencil(self):
        t, shape, m = self.source()
        k = self.r.randrange(len(shape)) if shape else 0
        if not shape or shape[k] < 3:
            return False
        a, step = self.axes(len(shape)), self.r.choice([1, 1, 2])
        taps = self.r.choice([[0, 1], [0, 1, 2], [0, 2], [2, 0]])
        n = (shape[k] - 1 - max(taps)) // step + 1
        terms = []
        for d in taps:
            at = list(a)
            at[k] = f"{a[k]} * {step} + {d}"
            terms.append(f"{t}[{', '.join(at)}]")
        return self.define(shape[:k] + (n,) + shape[k + 1 :], a, " + ".join(terms), m * len(taps))

    def pad(self):
        t, shape, m = self.source()
        if not shape:
            return False
        a = self.axes(len(shape))
        low, high = [self.r.choice([0, 1, 2]) for _ in a], [self.r.choice([0, 0, 1]) for _ in a]
        conds, at = [], []
        for x, e, lo, hi in zip(a, shape, low, high):
            at.append(f"{x} - {lo}" if lo else x)
            conds += [f"{x} >= {lo}"] * (lo > 0) + [f"{x} < {e + lo}"] * (lo + hi > 0)
        if not conds:
            return False
        which = self.r.choice(["te.if_then_else", "te.if_then_else", "tir.Select"])
        body = f"{which}(te.all({', '.join(conds)}), {t}[{', '.join(at)}], te.const(0, {self.dtype!r}))"
        return self.define(tuple(e + lo + hi for e, lo, hi in zip(shape, low, high)), a, body, m)

    def relayout(self):
        t, shape, m = self.source()
        a = self.axes(len(shape))
        kind = self.r.randrange(3)
        if kind == 0 and len(shape) > 1:
            order = list(range(len(shape)))
            self.r.shuffle(order)
            at = [a[order.index(k)] for k in range(len(shape))]
            return self.define(tuple(shape[k] for k in order), a, f"{t}[{', '.join(at)}]", m)
        if kind == 1 and shape:
            k = self.r.randrange(len(shape))
            at = [f"{shape[k] - 1} - {x}" if q == k else x for q, x in enumerate(a)]
            return self.define(shape, a, f"{t}[{', '.join(at)}]", m)
        if len(shape) == 2:
            return self.define((shape[0] * shape[1],), ["i"], f"{t}[te.floordiv(i, {shape[1]}), te.floormod(i, {shape[1]})]", m)
        return False

    def gather(self):
        t, shape, m = self.source()
        if not shape:
            return False
        n = self.r.choice([3, 5, 8])
        idx, _, _ = self.placeholder((n,), "int32")
        self.reading.append(idx)
        a = self.axes(len(shape))
        at = [f"te.min(te.max({idx}[i], 0), {shape[0] - 1})", *a[1:]]
        return self.define((n, *shape[1:]), a, f"{t}[{', '.join(at)}]", m)

    def reduce(self):
        """Over one to three dimensions of one tensor."""
        t, shape, m = self.source()
        if not shape:
            return False
        dims = sorted(self.r.sample(range(len(shape)), self.r.randint(1, min(3, len(shape)))))
        names, lines = self.reduce_axes([shape[k] for k in dims])
        kept = [k for k in range(len(shape)) if k not in dims]
        a = self.axes(len(kept))
        at, spare = [], iter(names)
        for k in range(len(shape)):
            at.append(next(spare) if k in dims else a[kept.index(k)])
        self.r.shuffle(names)
        f, n = self.reducer(), 1
        for k in dims:
            n *= shape[k]
        where = f", where={self.r.choice(names)} {self.r.choice(['>', '<', '!='])} 2" if self.r.random() < 0.15 else ""
        out = tuple(shape[k] for k in kept)
        if not out:
            out, a = (1,), ["i"]
        start = ""
        if self.r.random() < 0.15:
            start, more = self.first_values(out, a)
            m += more
        if where and f != "te.sum":
            where = ""  # over nothing a maximum is the smallest number of the type
        body = f"{f}({t}[{', '.join(at)}], axis=[{', '.join(names)}]{where}{start})"
        return self.define(out, a, body, m * n, before=lines)

    def first_values(self, shape, axes):
        """What a reduction begins with, and its largest magnitude: a number or an element of a tensor."""
        if self.r.random() < 0.5:
            return f", init=te.const(3, {self.dtype!r})", 3
        old = [t for t in self.made if t[1] == shape and self.p[t[0]].dtype == self.dtype]
        t, _, m = self.r.choice(old) if old and self.r.random() < 0.7 else self.placeholder(shape)
        self.reading.append(t)
        return f", init={t}[{', '.join(axes)}]", m

    def window(self):
        """Pooling and convolution."""
        t, shape, m = self.source()
        dims = [k for k in range(len(shape)) if shape[k] >= 3][:2]
        if not dims:
            return False
        taps = [self.r.choice([2, 3]) for _ in dims]
        step = self.r.choice([1, 1, 2])
        names, lines = self.reduce_axes(taps, first=0)
        out = list(shape)
        a = self.axes(len(shape))
        at = list(a)
        for k, n, name in zip(dims, taps, names):
            out[k] = (shape[k] - n) // step + 1
            at[k] = f"{a[k]} * {step} + {name}"
        value, top = f"{t}[{', '.join(at)}]", m
        for n in taps:
            top *= n
        f = self.reducer()
        if self.r.random() < 0.5:
            w, _, mw = self.placeholder(tuple(taps))
            self.reading.append(w)
            value, top, f = f"{value} * {w}[{', '.join(names)}]", top * mw, "te.sum"
        return self.define(tuple(out), a, f"{f}({value}, axis=[{', '.join(names)}])", top, before=lines)

    def product(self):
        """Sums of products over one or two axes: a matrix product, or rows times a vector of another length."""
        t, shape, m = self.source(2)
        n, k = shape
        if self.r.random() < 0.3:
            q = self.r.choice([2, 3, 5])
            u, _, mu = self.placeholder((q,))
            self.reading.append(u)
            names, lines = self.reduce_axes([k, q])
            body = f"te.sum({t}[i, {names[0]}] * {u}[{names[1]}], axis=[{', '.join(names)}])"
            return self.define((n,), ["i"], body, m * mu * k * q, before=lines)
        q = self.r.choice([1, 3, 4, 6, 8])
        u, _, mu = self.placeholder((k, q))
        self.reading.append(u)
        names, lines = self.reduce_axes([k])
        body = f"te.sum({t}[i, {names[0]}] * {u}[{names[0]}, j], axis={names[0]})"
        return self.define((n, q), ["i", "j"], body, m * mu * k, before=lines)

    def pair(self):
        """Operations with two outputs."""
        t, shape, m = self.source()
        if not shape:
            return False
        a = self.axes(len(shape))
        at = f"{t}[{', '.join(a)}]"
        kind = self.r.randrange(3)
        if kind == 0:
            return self.define(shape, a, f"({at} + te.const(1, {self.dtype!r}), {at} * te.const(2, {self.dtype!r}))",
                               2 * m + 1, outputs=2)
        names, lines = self.reduce_axes([shape[-1]], first=0)
        at = f"{t}[{', '.join([*a[:-1], names[0]])}]"
        out, a = (shape[:-1], a[:-1]) if len(shape) > 1 else ((1,), ["i"])
        n = f"red{self.count}"
        if kind == 1:
            lines.append(
                f"{n} = te.comm_reducer(lambda x, y: (tir.Select(tir.any(x[1] > y[1], tir.all(x[1] == y[1], x[0] <= y[0])),"
                f" x[0], y[0]), tir.Select(x[1] >= y[1], x[1], y[1])),"
                f" lambda s, t: (te.max_value(s), te.min_value(t)), name='argmax')"
            )
            return self.define(out, a, f"{n}(({names[0]}, {at}), axis={names[0]})", max(m, 12), before=lines, outputs=2)
        lines.append(
            f"{n} = te.comm_reducer(lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),"
            f" lambda s, t: (te.const(0, s), te.min_value(t)), name='sum_and_max')"
        )
        return self.define(out, a, f"{n}(({at}, {at}), axis={names[0]})", m * shape[-1], before=lines, outputs=2)

    KINDS = (
        [elementwise] * 3 + [binary] * 3 + [stencil] * 2 + [pad] * 2 + [relayout] * 2 + [gather] + [reduce] * 4
        + [window] * 2 + [product] * 3 + [pair]
    )  # fmt: skip

    def one(self):
        self.reading = []
        self.r.choice(self.KINDS)(self)

    def draw(self):
        for _ in range(self.r.choice([1, 2, 2, 3, 3, 4, 5])):
            self.one()
        while not self.made:
            self.one()
        ops = {}
        for name, _, _ in self.made:
            ops.setdefault(name.split("_")[0], []).append(name)
        unread = [o for o, names in ops.items() if not any(n in self.read for n in names)]
        outputs = unread + [o for o in ops if o not in unread and self.r.random() < 0.08]
        self.p.do(f"s = te.create_schedule([{', '.join(f'{o}.op' for o in outputs)}])")
        return ops, outputs


class Walk:
    """A random schedule. ``threads``: extents of threadIdx.x and .y of the whole program, None for a CPU program."""

    def __init__(self, program, rng, ops, outputs, gpu):
        self.p, self.r, self.outputs = program, rng, outputs
        self.tensors = [names[0] for names in ops.values()]  # stages, by one of their tensors
        self.threads = {"threadIdx.x": rng.choice([2, 3, 4, 8]), "threadIdx.y": rng.choice([1, 2, 3])} if gpu else None
        self.caches, self.scopes, self.axes = 0, {}, 0  # scopes: of the caches

    def leaves(self, t):
        return self.p["s"][self.p[t]].leaf_iter_vars

    def leaf(self, t, k):
        return f"s[{t}].leaf_iter_vars[{k}]"

    def reduces(self, t, k):
        return self.leaves(t)[k].iter_type == 2

    def pick(self, t):
        n = len(self.leaves(t))
        return self.r.randrange(n) if n else None

    def reads(self, u, t):
        s = self.p["s"]
        return any(x.op == s[self.p[t]].op for x in s[self.p[u]].op.input_tensors)

    # ---- loops ----

    def split(self, t):
        k = self.pick(t)
        if k is not None:
            self.p.attempt(f"s[{t}].split({self.leaf(t, k)}, {self.r.choice(['factor', 'nparts'])}={self.r.choice([1, 2, 2, 3, 4, 5, 8])})")

    def tile(self, t):
        n = len(self.leaves(t))
        if n > 1:
            a, b = self.r.sample(range(n), 2)
            f = [self.r.choice([1, 2, 3, 4]) for _ in range(2)]
            self.p.attempt(f"s[{t}].tile({self.leaf(t, a)}, {self.leaf(t, b)}, {f[0]}, {f[1]})")

    def fuse(self, t):
        n = len(self.leaves(t))
        if n > 1 and self.r.random() < 0.95:
            many = self.r.choice([2, 2, 2, 3]) if n > 2 else 2
            k = self.r.randrange(n - many + 1)
            self.p.attempt(f"s[{t}].fuse({', '.join(self.leaf(t, k + q) for q in range(many))})")
        elif self.r.random() < 0.2:
            self.p.attempt(f"s[{t}].fuse()")

    def reorder(self, t):
        n = len(self.leaves(t))
        if n > 1:
            some = self.r.sample(range(n), self.r.randint(2, n))
            self.p.attempt(f"s[{t}].reorder({', '.join(self.leaf(t, k) for k in some)})")

    def annotate(self, t):
        k = self.pick(t)
        if k is not None:
            what = self.r.choice(["unroll", "unroll", "vectorize", "vectorize", "parallel"])
            if what == "parallel" and self.r.random() < 0.7:
                k = 0
            self.p.attempt(f"s[{t}].{what}({self.leaf(t, k)})")

    def pragma(self, t):
        k = self.pick(t)
        if k is not None:
            key, v = self.r.choice([("auto_unroll_max_step", 16), ("auto_unroll_max_step", 64), ("unroll_explicit", 0), ("vectorize", 1)])
            self.p.attempt(f"s[{t}].pragma({self.leaf(t, k)}, {key!r}, {v})")

    def align(self, t):
        n = len(self.p["s"][self.p[t]].op.axis)
        if n:
            f = self.r.choice([2, 4, 16, 32])
            self.p.attempt(f"s[{t}].storage_align(s[{t}].op.axis[{self.r.randrange(n)}], {f}, {self.r.randint(0, f)})")

    # ---- placement ----

    def attach(self, t):
        others = [u for u in self.tensors if u != t]
        if not others:
            return
        later = [u for u in others if self.tensors.index(u) > self.tensors.index(t)]
        if self.r.random() < 0.97:
            if not later or t in self.outputs:
                return
            readers = [u for u in later if self.reads(u, t)]
            others = readers[:1] if len(readers) == 1 and self.r.random() < 0.9 else later
        u = self.r.choice(others)
        k = self.pick(u)
        if k is not None:
            self.p.attempt(f"s[{t}].compute_at(s[{u}], {self.leaf(u, k)})")

    def inline(self, t):
        if t not in self.outputs or self.r.random() < 0.05:
            self.p.attempt(f"s[{t}].compute_inline()")

    def root(self, t):
        self.p.attempt(f"s[{t}].compute_root()")

    def scope(self, t):
        if t not in self.outputs or self.r.random() < 0.1:
            self.p.attempt(f"s[{t}].set_scope({self.r.choice(['global', 'local', 'shared', ''])!r})")

    def double(self, t):
        self.p.attempt(f"s[{t}].double_buffer()")

    # ---- data flow ----

    def cached(self, name, t, after):
        at = self.tensors.index(t) if t in self.tensors else -1
        self.tensors.insert(at + 1 if after else at, name)

    def cache_read(self, t):
        readers = [u for u in self.tensors if u != t]
        stage = self.p["s"][self.p[t]].op
        if stage.num_outputs > 1 or self.r.random() < 0.5:
            reads = list(stage.input_tensors)
        else:
            reads = [stage.output(0)]
        if not reads:
            return
        x = self.r.choice(reads)
        readers = [u for u in self.tensors if any(q == x for q in self.p["s"][self.p[u]].op.input_tensors)]
        name = next((n for n, v in self.p.names.items() if isinstance(v, te.Tensor) and v == x), None)
        if name is None or not readers:
            return
        some = self.r.sample(readers, self.r.randint(1, len(readers)))
        self.caches += 1
        new = f"c{self.caches}"
        self.scopes[new] = scope = self.r.choice(["local", "global", "shared", "shared"])
        if self.p.attempt(f"{new} = s.cache_read({name}, {scope!r}, [{', '.join(some)}])"):
            first = min(some, key=self.tensors.index)
            self.cached(new, first, False)
            if self.r.random() < 0.6:
                k = self.pick(first)
                if k is not None:
                    self.p.attempt(f"s[{new}].compute_at(s[{first}], {self.leaf(first, k)})")

    def cache_write(self, t):
        op = self.p["s"][self.p[t]].op
        self.caches += 1
        new = f"c{self.caches}"
        self.scopes[new] = scope = self.r.choice(["local", "local", "global", "shared"])
        what = t if op.num_outputs == 1 else f"[s[{t}].op.output(q) for q in range({op.num_outputs})]"
        left = new if op.num_outputs == 1 else f"{new}, {', '.join(f'{new}_{q}' for q in range(1, op.num_outputs))}"
        if self.p.attempt(f"{left} = s.cache_write({what}, {scope!r})"):
            self.cached(new, t, False)

    def rfactor(self, t):
        reduced = [k for k in range(len(self.leaves(t))) if self.reduces(t, k)]
        if not reduced:
            return
        self.caches += 1
        new = f"c{self.caches}"
        op = self.p["s"][self.p[t]].op
        left = new if op.num_outputs == 1 else f"{new}, {', '.join(f'{new}_{q}' for q in range(1, op.num_outputs))}"
        at = self.r.randint(-1, len(op.axis))
        if self.p.attempt(f"{left} = s.rfactor({t}, {self.leaf(t, self.r.choice(reduced))}, {at})"):
            self.cached(new, t, False)

    def predicate(self, t):
        """A condition that always holds, over an axis of the stage."""
        axes = self.p["s"][self.p[t]].op.axis
        if axes:
            k = self.r.randrange(len(axes))
            self.p.attempt(f"s[{t}].set_store_predicate(s[{t}].op.axis[{k}].var < {axes[k].extent})")

    STEPS = (
        [split] * 5 + [tile] + [fuse] * 4 + [reorder] * 4 + [annotate] * 5 + [pragma] + [align] + [attach] * 5 + [inline] * 2
        + [root] + [scope] + [double] + [cache_read] * 2 + [cache_write] * 2 + [rfactor] * 2 + [predicate]
    )  # fmt: skip

    def cpu(self):
        for _ in range(self.r.choice([1, 2, 3, 4, 6, 8, 10, 14])):
            self.r.choice(self.STEPS)(self, self.r.choice(self.tensors))

    # ---- GPU ----

    def thread(self, tag):
        """A thread axis: mostly a new one, sometimes one that other loops are bound to as well."""
        old = [n for n, v in self.p.names.items() if n.startswith("x_") and v.thread_tag == tag]
        if old and self.r.random() < (0.25 if tag in self.threads else 0.03):  # equal extents, or it is refused
            return self.r.choice(old)
        self.axes += 1
        self.p.do(f"x_{self.axes} = te.thread_axis({tag!r})")
        return f"x_{self.axes}"

    def bind(self, t, k, tag):
        """Leaf k, or the part of it that has one iteration per thread; returns the position of the bound loop."""
        if tag in self.threads:
            how = self.r.choice(["factor", "nparts"])
            if not self.p.attempt(f"s[{t}].split({self.leaf(t, k)}, {how}={self.threads[tag]})"):
                return k
            k += how == "factor"
        elif self.r.random() < 0.6:
            self.p.attempt(f"s[{t}].split({self.leaf(t, k)}, {self.r.choice(['factor', 'nparts'])}={self.r.choice([1, 2, 3, 4])})")
        self.p.attempt(f"s[{t}].bind({self.leaf(t, k)}, {self.thread(tag)})")
        return k

    def first_data(self, t):
        """Data loops before reduction loops."""
        n = len(self.leaves(t))
        order = sorted(range(n), key=lambda k: self.reduces(t, k))
        if order != list(range(n)):
            self.p.attempt(f"s[{t}].reorder({', '.join(self.leaf(t, k) for k in order)})")

    def bind_root(self, t):
        """Outermost loops over blocks, then virtual threads and threads; sometimes a reduction across threads."""
        if self.r.random() < 0.9:
            self.first_data(t)
        data = sum(not self.reduces(t, k) for k in range(len(self.leaves(t))))
        if data > 1 and self.r.random() < 0.5:
            self.p.attempt(f"s[{t}].fuse({', '.join(self.leaf(t, k) for k in range(self.r.randint(2, data)))})")
        at, tags = 0, self.r.choice([
            ["blockIdx.x", "threadIdx.x"], ["threadIdx.x"], ["blockIdx.x", "vthread", "threadIdx.x"], ["blockIdx.x"],
            ["blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"], ["threadIdx.y", "threadIdx.x"], ["blockIdx.x", "vthread"],
        ])  # fmt: skip
        for tag in tags:
            if at >= len(self.leaves(t)) or (self.reduces(t, at) and self.r.random() < 0.97):
                break
            k = self.bind(t, at, tag)
            if k != at:
                self.p.attempt(f"s[{t}].reorder({self.leaf(t, k)}, {self.leaf(t, at)})")
            at += 1
        reduced = [k for k in range(len(self.leaves(t))) if self.reduces(t, k)]
        free = [x for x in self.threads if x not in tags or self.r.random() < 0.03]
        if reduced and free and self.r.random() < 0.4:
            self.bind(t, self.r.choice(reduced), self.r.choice(free))

    def place(self, t):
        """Inside one of its readers: scope by chance, its own loops sometimes spread over the threads."""
        later = self.tensors[self.tensors.index(t) + 1 :]
        readers = [u for u in later if self.reads(u, t)]
        if not readers:
            return
        u = readers[0] if len(readers) == 1 or self.r.random() < 0.8 else self.r.choice(later)
        k = self.pick(u)
        if k is None or not self.p.attempt(f"s[{t}].compute_at(s[{u}], {self.leaf(u, k)})"):
            return
        scope = self.scopes.get(t, "")
        if scope in ("", "global") and self.r.random() < (0.7 if scope == "" else 0.95):
            scope = self.r.choice(["shared"] * 4 + ["local"] * 4 + ["global"])
            self.p.attempt(f"s[{t}].set_scope({scope!r})")
        if self.leaves(t) and self.r.random() < (0.6 if scope == "shared" else 0.1):
            if len(self.leaves(t)) > 1 and self.r.random() < 0.4:
                self.fuse(t)
            for tag in self.r.choice([["threadIdx.x"], ["threadIdx.x"], ["threadIdx.y"], ["threadIdx.y", "threadIdx.x"]]):
                free = [k for k, x in enumerate(self.leaves(t)) if self.r.random() < 0.95 and not self.reduces(t, k)]
                if free:
                    self.bind(t, self.r.choice(free), tag)

    def gpu(self):
        for _ in range(self.r.choice([0, 1, 1, 2, 3])):
            step = self.r.choice([Walk.cache_read, Walk.cache_write, Walk.rfactor, Walk.align, Walk.double])
            step(self, self.r.choice(self.tensors))
        for t in list(reversed(self.tensors)):
            on_chip = self.scopes.get(t) in ("local", "shared")
            for _ in range(self.r.choice([0, 0, 0, 1, 2])):
                self.r.choice([Walk.split, Walk.fuse, Walk.reorder])(self, t)
            if t in self.outputs or (self.r.random() < (0.01 if on_chip else 0.3)):
                self.bind_root(t)
            elif not on_chip and self.r.random() < 0.3:
                self.inline(t)
            else:
                self.place(t)
        for _ in range(self.r.choice([0, 0, 1, 2])):
            step = self.r.choice([Walk.annotate, Walk.pragma, Walk.split, Walk.reorder, Walk.scope, Walk.predicate])
            step(self, self.r.choice(self.tensors))


def draw(seed, gpu):
    """A program, its inputs and outputs (names of tensors, in the order of the function's arguments)."""
    r = random.Random(f"{seed}-{gpu}")
    p = Program()
    dag = Dag(p, r)
    ops, outputs = dag.draw()
    walk = Walk(p, r, ops, outputs, gpu)
    walk.gpu() if gpu else walk.cpu()
    results = [n for o, names in ops.items() for n in names if o in outputs or r.random() < 0.1]
    used = [n for n in dag.inputs if n in dag.read]
    p.do(f"args = [{', '.join(used + results)}]")
    return p


def shortest(lines, fails):
    """The lines without those of the schedule that the failure does not need."""
    again = True
    while again:
        again = False
        for i in reversed(range(len(lines))):
            if not (lines[i].startswith(("s[", "x_")) or " = s." in lines[i]):
                continue
            fewer = lines[:i] + lines[i + 1 :]
            try:
                still = fails(fewer)
            except Exception:  # noqa: BLE001 - lines that do not fit together any more
                still = False
            if still:
                lines, again = fewer, True
    return lines
