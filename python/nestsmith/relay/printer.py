"""Graph expressions as text."""

from __future__ import annotations

from .expr import Call, Constant, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, above, children

__all__ = ["astext"]

_HEADER = '#[version = "0.0.5"]\n'


def _value(v):
    if isinstance(v, str):
        return f'"{v}"'
    if isinstance(v, (tuple, list)):
        return "[" + ", ".join(map(_value, v)) + "]"
    if isinstance(v, float):
        return f"{v:g}f"
    if isinstance(v, Function):
        return f"fn/{len(v.params)}"
    return str(v)


def _attrs(attrs):
    return "".join(f", {k}={_value(v)}" for k, v in attrs.items() if v not in (None, ""))


class _Printer:
    def __init__(self):
        self.names, self.used, self.lines, self.count = {}, set(), [], 0
        self.constants = 0

    def var(self, v):
        if id(v) not in self.names:
            base = name = v.name_hint or "v"
            k = 1
            while name in self.used:
                name, k = f"{base}_{k}", k + 1
            self.used.add(name)
            self.names[id(v)] = "%" + name
        return self.names[id(v)]

    def param(self, v):
        return f"{self.var(v)}: {v._type}" if v._type is not None else self.var(v)

    def ref(self, e):
        return self.names[id(e)]

    def temp(self, e, text, indent):
        name = self.names[id(e)] = f"%{self.count}"
        self.count += 1
        ty = f" /* ty={e._type} */" if e._type is not None else ""
        self.lines.append(f"{indent}{name} = {text}{ty};")

    def function(self, f, head, indent):
        attrs = "".join(f", {k}={_value(v)}" for k, v in f.attrs.items())
        ret = f" -> {f.body._type}" if f.body._type is not None else ""
        self.lines.append(f"{indent}{head}({', '.join(map(self.param, f.params))}{attrs}){ret} {{")
        self.body(f.body, indent + "  ")
        self.lines.append(indent + "}")

    def inside(self, e):
        """What must be printed before `e`: bodies of functions and branches have blocks of their own."""
        if isinstance(e, Function):
            return ()
        if isinstance(e, If):
            return (e.cond,)
        if isinstance(e, Let):
            return (e.value,)
        if isinstance(e, Call) and isinstance(e.op, Function):
            return (e.op, *e.args)
        return children(e)

    def body(self, e, indent):
        """The lines of a block whose value is `e`."""
        while isinstance(e, Let):
            self.values(e.value, indent)
            self.lines.append(f"{indent}let {self.var(e.var)} = {self.ref(e.value)};")
            e = e.body
        self.values(e, indent)
        self.lines.append(indent + self.ref(e))

    def values(self, root, indent):
        """A line for everything that `root` needs and that has no name yet."""
        stack = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if id(e) in self.names:
                continue
            if ready:
                self.value(e, indent)
            else:
                stack.append((e, True))
                stack.extend((c, False) for c in reversed(self.inside(e)))

    def value(self, n, indent):
        if isinstance(n, Var):
            self.var(n)
        elif isinstance(n, GlobalVar):
            self.names[id(n)] = f"@{n.name_hint}"
        elif isinstance(n, Constant):
            if n.is_scalar:
                self.names[id(n)] = f"{n.numbers.item():g}{'f' if n.numbers.dtype.kind == 'f' else ''}"
            else:
                self.names[id(n)] = f"meta[relay.Constant][{self.constants}] /* ty={n._type} */"
                self.constants += 1
        elif isinstance(n, Call):
            name = n.op.name if n.op_name else self.ref(n.op)
            args = ", ".join(self.ref(a) for a in n.args)
            attrs = _attrs(n.attrs)
            self.temp(n, f"{name}({args}{attrs if args else attrs[2:]})", indent)
        elif isinstance(n, Tuple):
            inner = ", ".join(map(self.ref, n.fields))
            self.names[id(n)] = f"({inner}{',' if len(n.fields) == 1 else ''})"
        elif isinstance(n, TupleGetItem):
            self.names[id(n)] = f"{self.ref(n.tuple_value)}.{n.index}"
        elif isinstance(n, Function):
            name = f"%{self.count}"
            self.count += 1
            self.function(n, f"{name} = fn ", indent)
            self.lines[-1] += ";"
            self.names[id(n)] = name
        elif isinstance(n, Let):
            self.body(n, indent)
            self.names[id(n)] = self.lines.pop().strip()
        elif isinstance(n, If):
            name = f"%{self.count}"
            self.count += 1
            self.lines.append(f"{indent}{name} = if ({self.ref(n.cond)}) {{")
            self.body(n.true_branch, indent + "  ")
            self.lines.append(indent + "} else {")
            self.body(n.false_branch, indent + "  ")
            self.lines.append(indent + "};")
            self.names[id(n)] = name


def astext(obj):
    """Text of an expression, function or module; types are shown where they are known."""
    p = _Printer()
    functions = getattr(obj, "functions", None)
    if functions is not None:
        parts = []
        for gv, f in functions.items():
            q = _Printer()
            q.function(f, f"def @{gv.name_hint}", "")
            parts.append("\n".join(q.lines))
        return _HEADER + "\n\n".join(parts) + "\n"
    if isinstance(obj, Function):
        p.function(obj, "fn ", "")
    else:
        p.body(obj, "")
    return _HEADER + "\n".join(p.lines) + "\n"


above.astext = astext
