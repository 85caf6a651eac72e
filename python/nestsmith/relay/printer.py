"""Graph expressions as text."""

from __future__ import annotations

from .expr import Call, Constant, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, post_order

__all__ = ["astext"]

_HEADER = '#[version = "0.0.5"]\n'


def _value(v):
    if isinstance(v, str):
        return f'"{v}"'
    if isinstance(v, (tuple, list)):
        return "[" + ", ".join(map(_value, v)) + "]"
    if isinstance(v, float):
        return f"{v:g}f"
    return str(v)


def _attrs(attrs):
    return "".join(f", {k}={_value(v)}" for k, v in attrs.items() if v not in (None, ""))


class _Printer:
    def __init__(self):
        self.names, self.used, self.lines, self.count = {}, set(), [], 0

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

    def body(self, e, indent):
        for n in post_order(e):
            if id(n) in self.names:
                continue
            if isinstance(n, Var):
                self.var(n)
            elif isinstance(n, GlobalVar):
                self.names[id(n)] = f"@{n.name_hint}"
            elif isinstance(n, Constant):
                if n.is_scalar:
                    self.names[id(n)] = f"{n.data.item():g}{'f' if n.data.dtype.kind == 'f' else ''}"
                else:
                    t = n._type
                    self.names[id(n)] = f"meta[relay.Constant][{self.count}] /* ty={t} */"
                    self.count += 0
            elif isinstance(n, Call):
                op = n.op.name if n.op_name else self.ref(n.op)
                sep = ", ".join(self.ref(a) for a in n.args)
                attrs = _attrs(n.attrs)
                self.temp(n, f"{op}({sep}{attrs if sep else attrs[2:]})", indent)
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
                self.lines.append(f"{indent}let {self.var(n.var)} = {self.ref(n.value)};")
                self.names[id(n)] = self.ref(n.body)
            elif isinstance(n, If):
                self.temp(
                    n,
                    f"if ({self.ref(n.cond)}) {{ {self.ref(n.true_branch)} }} else {{ {self.ref(n.false_branch)} }}",
                    indent,
                )
        self.lines.append(indent + self.ref(e))


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
