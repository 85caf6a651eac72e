"""What `query_rpc_tracker` and `TrackerSession.text_summary` print."""

from __future__ import annotations

__all__ = ["summary_text"]


def _address(text):
    return text.split("://")[-1]


def summary_text(summary, verbose=False):
    """The two tables of `query_rpc_tracker`; with `verbose` a third one says what each device does."""
    rule = "-" * 30
    lines = ["Server List", rule, "server-address           key", rule]
    servers = sorted((s["key"], _address(s["addr"])) for s in summary["server_info"])
    lines += [f"{address:>21}    {key}" for key, address in servers] + [rule, ""]
    queue = {k: v for k, v in sorted(summary["queue_info"].items()) if v["total"] or v["pending"]}
    width = max([len(k) for k in queue] + [3])
    title = f"{'key':<{width}}   total  free  pending"
    rule = "-" * (len(title) + 1)
    lines += ["Queue Status", rule, title, rule]
    lines += [f"{k:<{width}}   {v['total']:<5}  {v['free']:<4}  {v['pending']:<7}" for k, v in queue.items()]
    lines += [rule]
    if verbose:
        lines += ["", "Devices"]
        for d in sorted(summary["devices"], key=lambda d: (d["key"], d["address"])):
            what = f"busy with {d['user']}" if d["state"] == "busy" else f"{d['state']}: {d['why']}"
            lines.append(f"{_address(d['address']):>21}    {d['key']}   {what}, for {d['for']:.0f} s")
        lines += [f"last event of {k}: {text}" for k, text in sorted(summary["last"].items())]
    return "\n".join(lines) + "\n"
