"""Linear forms and ranges of expressions."""

from .. import _core
from ..tir.expr import const
from .analyzer import Analyzer, IntervalSet

__all__ = ["deduce_bound", "detect_clip_bound", "detect_common_subexpr", "detect_linear_equation",
           "estimate_region_lower_bound", "estimate_region_strict_bound", "estimate_region_upper_bound"]


def _free(var, expr):
    return var not in _core.expr_vars(const(expr))


def _linear(expr, var):
    """(coefficient, rest) of an expression that is linear in a variable, else None."""
    zero, one = (const(v, var.dtype) for v in (0, 1))
    rest = _core.arith_simplify(_core.expr_substitute(expr, [var], [zero]), ())
    slope = _core.arith_simplify(_core.expr_substitute(expr, [var], [one]) - rest, ())
    same = _core.expr_bin("EQ", expr, slope * var + rest)
    return (slope, rest) if _free(var, slope) and _core.arith_prove(same, ()) else None


def detect_linear_equation(expr, var_list):
    """``[c1, ..., cn, base]`` with ``expr = c1 * v1 + ... + base``; an empty list if it has no such form."""
    rest, out = const(expr), []
    for v in var_list:
        v = getattr(v, "var", v)
        found = _linear(rest, v)
        if found is None:
            return []
        out.append(found[0])
        rest = found[1]
    if any(not _free(getattr(v, "var", v), c) for v in var_list for c in out):
        return []
    return [*out, rest]


def _conditions(expr):
    return [c for e in expr.args for c in _conditions(e)] if expr.kind == "And" else [expr]


_FLIP = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ"}


def detect_clip_bound(expr, var_list):
    """``[min1, max1, min2, max2, ...]`` of variables that a conjunction of comparisons bounds (None: not bounded); an empty list if it has
    another form."""
    names = [getattr(v, "var", v) for v in var_list]
    low: dict = {v: None for v in names}
    high: dict = {v: None for v in names}
    for c in _conditions(const(expr)):
        if c.kind not in _FLIP:
            return []
        used = [v for v in names if not _free(v, c)]
        if len(used) != 1:
            return []
        v = used[0]
        found = _linear(c.args[0] - c.args[1], v)
        if found is None or found[0].kind != "IntImm" or abs(found[0].value) != 1:
            return []
        kind, edge = c.kind, -found[1] if found[0].value == 1 else found[1]
        kind = kind if found[0].value == 1 else _FLIP[kind]
        if kind in ("LT", "LE", "EQ"):
            most = edge - 1 if kind == "LT" else edge
            high[v] = most if high[v] is None else _core.expr_bin("Min", high[v], most)
        if kind in ("GT", "GE", "EQ"):
            least = edge + 1 if kind == "GT" else edge
            low[v] = least if low[v] is None else _core.expr_bin("Max", low[v], least)
    return [None if e is None else _core.arith_simplify(e, ()) for v in names for e in (low[v], high[v])]


def detect_common_subexpr(expr, threshold):
    """A dict of the sub-expressions that occur at least ``threshold`` times, with how often."""
    count: dict = {}

    def visit(e):
        if e.kind in ("Var", "IntImm", "FloatImm"):
            return
        count[e] = count.get(e, 0) + 1
        for k in e.args:
            visit(k)

    visit(const(expr))
    return {e: n for e, n in count.items() if n >= threshold}


def deduce_bound(var, cond, hint_map, relax_map):
    """The :class:`IntervalSet` of a variable for which ``cond`` holds whatever the variables of ``relax_map`` (to IntervalSets) are. Sides
    that do not follow are None."""
    var, cond = getattr(var, "var", var), const(cond)
    if cond.kind not in _FLIP:
        return IntervalSet(None, None)
    del hint_map
    found = _linear(cond.args[0] - cond.args[1], var)
    if found is None:
        return IntervalSet(None, None)
    slope, rest = found
    low, high = _core.arith_bound(slope, ())
    if low <= 0 <= high:
        return IntervalSet(None, None)
    kind = cond.kind if low > 0 else _FLIP[cond.kind]
    edge, size = (-rest, slope) if low > 0 else (rest, -slope)
    reach = Analyzer().int_set(edge, relax_map) if relax_map else IntervalSet(edge, edge)
    ceil = lambda e: _core.expr_bin("FloorDiv", e + (size - 1), size)  # noqa: E731
    floor = lambda e: _core.expr_bin("FloorDiv", e, size)  # noqa: E731
    most = least = None
    if kind in ("LT", "LE", "EQ") and reach.min_value is not None:
        most = floor(reach.min_value - 1) if kind == "LT" else floor(reach.min_value)
    if kind in ("GT", "GE", "EQ") and reach.max_value is not None:
        least = floor(reach.max_value) + 1 if kind == "GT" else ceil(reach.max_value)
    return IntervalSet(*(None if e is None else _core.arith_simplify(e, ()) for e in (least, most)))


def estimate_region_upper_bound(region, var_dom, predicate):
    """For each Range of a region the :class:`IntervalSet` that covers it, whatever the variables of ``var_dom`` (to Ranges) are."""
    del predicate  # what is covered without it is covered with it
    ana, out = Analyzer(), []
    for r in region:
        first, last = ana.int_set(r.min, var_dom), ana.int_set(r.min + r.extent - 1, var_dom)
        out.append(IntervalSet(first.min_value, last.max_value))
    return out


def estimate_region_strict_bound(region, var_dom, predicate):
    """As :func:`estimate_region_upper_bound`, or None where the region is not known exactly."""
    found = estimate_region_upper_bound(region, var_dom, predicate)
    ok = all(s.min_value is not None and s.max_value is not None for s in found)
    exact = const(predicate).kind == "IntImm" and bool(const(predicate).value) and all(_dense(r, var_dom) for r in region)
    return found if ok and exact else None


estimate_region_lower_bound = estimate_region_strict_bound


def _dense(r, var_dom):
    """Whether a sum of variables leaves no gaps: the smallest step is at most the extent, and each next one what the ones before span."""
    steps = []
    for v, dom in var_dom.items():
        v = getattr(v, "var", v)
        if _free(v, r.min):
            continue
        found = _linear(const(r.min), v)
        if found is None or found[0].kind != "IntImm" or const(dom.extent).kind != "IntImm":
            return False
        steps.append((abs(found[0].value), const(dom.extent).value))
    span = const(r.extent)
    if span.kind != "IntImm":
        return not steps
    reach = span.value
    for step, n in sorted(steps):
        if step > reach:
            return False
        reach += step * (n - 1)
    return True
