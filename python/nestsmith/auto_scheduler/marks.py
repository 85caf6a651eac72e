"""Marks: how a result was measured.

They follow the version in the record's field "v", which readers of the format (TVM's among them) read and ignore:
"v0.6 stage=quick n=3 sd=0.002 l2=mixed". A key of its own would make TVM refuse the log.
"""

__all__ = ["write_marks", "read_marks"]

_MARKS = {"stage": str, "n": int, "sd": float, "l2": str, "redone": int, "regs": int, "smem": int, "lmem": int,
          "occ": float, "cause": str, "class": str, "math": str}
_FLAGS = "audited", "disturbed"


def write_marks(res, math="strict"):
    """The field "v" of a result of a task in a math mode."""
    extra, out = getattr(res, "extra", None) or {}, ["v0.6"] + ([f"math={math}"] if math != "strict" else [])
    if res.error_no == 0:
        if "stage" not in extra:
            return " ".join(out)
        out += [f"stage={extra['stage']}", f"n={extra.get('blocks', extra.get('n', 0))}"]
        out.append(f"sd={float(extra.get('spread', extra.get('sd', 0.0))):.2g}")
        if extra.get("l2"):
            out.append(f"l2={extra['l2']}")
        out += [f"{k}={extra[v]}" for k, v in (("redone", "redone"), ("regs", "regs"), ("smem", "shared_bytes"),
                                                   ("lmem", "local_bytes"))
                if extra.get(v)]  # fmt: skip
        if extra.get("occupancy"):
            out.append(f"occ={extra['occupancy']:.2f}")
        if extra.get("class"):
            out.append(f"class={extra['class']}")
        out += [k for k in _FLAGS if extra.get(k)]
    else:
        if not extra.get("cause"):
            return " ".join(out)
        out.append(f"cause={extra['cause']}")
        text = " ".join(str(res.error_msg).split())[:200]
        if text:
            out.append("msg=" + "".join(c for c in text if c.isprintable()))
    return " ".join(out)


def read_marks(version):
    """The dict of what `write_marks` wrote; empty for plain records. Unknown marks are left out."""
    if " " not in version:
        return {}
    text, _, msg = version.partition(" msg=")
    extra = {"msg": msg} if msg else {}
    for word in text.split()[1:]:
        key, eq, value = word.partition("=")
        if not eq and key in _FLAGS:
            extra[key] = True
        elif key in _MARKS:
            try:
                extra[key] = _MARKS[key](value)
            except ValueError:
                continue
    for short, name in (("n", "blocks"), ("sd", "spread"), ("smem", "shared_bytes")):
        if short in extra:
            extra[name] = extra[short]
    if "stage" in extra:
        extra["full"] = extra["stage"] == "full"
    return extra
