"""What `query_rpc_tracker` and `TrackerSession.text_summary` print."""

__all__ = ["summary_text", "waiting_text"]


def _address(text):
    return text.split("://")[-1]


def _state(device):
    """What a device does and since when."""
    what = f"busy with {device['user']}" if device["state"] == "busy" else f"{device['state']}: {device['why']}"
    return f"{what}, for {device['for']:.0f} s"


def waiting_text(summary, key):
    """What the devices of a key do while one of them is waited for, and what happened last."""
    found = [f"{_address(d['address'])} is {_state(d)}" for d in summary["devices"] if d["key"] == key]
    return f"{'; '.join(found) or 'none is there'}; last event: {summary['last'].get(key, 'none has ever registered')}"


def summary_text(summary, verbose=False):
    """The two tables of `query_rpc_tracker`; with `verbose` what each device does and who waits."""
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
            lines.append(f"{_address(d['address']):>21}    {d['key']}   {_state(d)}")
        lines += [f"{w['user']} waits for {w['key']} (priority {w['priority']}), for {w['for']:.0f} s" for w in summary["waiting"]]
        lines += [f"last event of {k}: {text}" for k, text in sorted(summary["last"].items())]
    return "\n".join(lines) + "\n"
