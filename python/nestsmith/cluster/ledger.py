"""Who has which device. Boards come and go, requests wait by priority and then in order of arrival, a lease ends with its release,
with its holder or with its board. The ledger knows nothing of networks and clocks: it is told what happened and when, and answers
with what is to be said to whom.
"""

import itertools
import secrets

__all__ = ["Ledger", "RENEW_SECONDS", "WAIT_SECONDS"]

RENEW_SECONDS = 30.0  # a lease that is not renewed for so long is taken back: its holder is stopped or cut off
WAIT_SECONDS = 60.0  # for a board of a key that none has


class _Board:
    __slots__ = ("address", "key", "facts", "lease", "since", "confirmed")

    def __init__(self, address, key, facts, now):
        self.address, self.key, self.facts, self.since, self.lease, self.confirmed = address, key, facts, now, None, False


class _Request:
    __slots__ = ("number", "client", "user", "key", "priority", "like", "but", "since", "alone_since", "wait")

    def __init__(self, number, client, user, key, priority, like, but, wait, now):
        self.number, self.client, self.user, self.key, self.priority = number, client, user, key, priority
        self.like, self.but, self.wait = like, frozenset(but or ()), wait
        self.since = self.alone_since = now  # alone: no board of the key is there

    def fits(self, board):
        if board.address in self.but:
            return False
        return not self.like or self.like in board.facts.get("classes", {}).values()


class _Lease:
    __slots__ = ("token", "client", "user", "number", "board", "since", "renewed")

    def __init__(self, token, request, board, now):
        self.token, self.client, self.user, self.number, self.board = token, request.client, request.user, request.number[2], board
        self.since = self.renewed = now


class Ledger:
    """Methods return events: ("grant", client, request number, token, address, facts), ("refuse", client, request number, why),
    ("lost", client, token, why), ("wanted", client, key): others wait for what the client has,
    ("begin", address, token) and ("end", address, token) for boards."""

    def __init__(self):
        self.boards, self.leases, self.requests = {}, {}, []
        self._arrival = itertools.count()
        self.last = {}  # what happened last to a key

    def _note(self, key, text):
        self.last[key] = text

    # ---- boards ----
    def board_added(self, address, key, facts, now):
        """A board is there and idle."""
        self.boards[address] = _Board(address, key, facts, now)
        self._note(key, f"{address} registered")
        self._look_around(now)
        return self._match(key, now)

    def _look_around(self, now):
        """Which requests have no board that would do."""
        for r in self.requests:
            if any(b.key == r.key and r.fits(b) for b in self.boards.values()):
                r.alone_since = None
            elif r.alone_since is None:
                r.alone_since = now

    def board_removed(self, address, now, why="its server is gone"):
        """A board is gone; whoever had it is told."""
        board = self.boards.pop(address, None)
        if board is None:
            return []
        self._note(board.key, f"{address} is gone: {why}")
        out = []
        if board.lease:
            lease = self.leases.pop(board.lease)
            out.append(("lost", lease.client, lease.token, f"the device {address} is lost: {why}"))
        self._look_around(now)
        return out

    # ---- clients ----
    def acquire(self, client, number, key, now, priority=1, like=None, but=(), wait=WAIT_SECONDS, user=""):
        """Asks for a device; granted now or later, in the order of (-priority, arrival)."""
        r = _Request((-priority, next(self._arrival), number), client, user, key, priority, like, but, wait, now)
        self.requests.append(r)
        self.requests.sort(key=lambda q: q.number[:2])
        self._look_around(now)
        out = self._match(key, now)
        if r in self.requests:
            holders = {lease.client for lease in self.leases.values() if lease.board.key == key} - {client}
            out += [("wanted", c, key) for c in sorted(holders)]
        return out

    def cancel(self, client, number, now):
        """The client does not want the device any more, be it on its way already."""
        self.requests = [r for r in self.requests if not (r.client == client and r.number[2] == number)]
        sent = [x for x in self.leases.values() if (x.client, x.number) == (client, number)]
        return [e for lease in sent for e in self._free(lease, now)]

    def release(self, client, token, now):
        """Gives a device back; nothing happens if it is not the client's."""
        lease = self.leases.get(token)
        return self._free(lease, now) if lease and lease.client == client else []

    def renew(self, client, now):
        """All leases of a client go on."""
        for lease in self.leases.values():
            if lease.client == client:
                lease.renewed = now

    def client_lost(self, client, now):
        """A client's connection is closed: its requests are dropped, its devices are free."""
        self.requests = [r for r in self.requests if r.client != client]
        return [e for lease in list(self.leases.values()) if lease.client == client for e in self._free(lease, now)]

    # ---- time ----
    def tick(self, now):
        """Takes back leases that nobody renews; refuses requests for which there is no board."""
        out = []
        for lease in list(self.leases.values()):
            if now - lease.renewed > RENEW_SECONDS:
                out.append(("lost", lease.client, lease.token, f"the lease was not renewed for {RENEW_SECONDS:g} s"))
                out += self._free(lease, now)
        for r in list(self.requests):
            if r.alone_since is not None and now - r.alone_since >= r.wait:
                self.requests.remove(r)
                out.append(("refuse", r.client, r.number[2], self.why_none(r)))
        return out

    def why_none(self, request):
        """Why a request is not served."""
        last = self.last.get(request.key)
        keys = sorted({b.key for b in self.boards.values()})
        of_class = f" of the class {request.like}" if request.like else ""
        left_out = f" besides {', '.join(sorted(request.but))}, which the request leaves out (devices of another speed)" if request.but else ""
        event = f"; last event: {last}" if last else "; none has ever registered"
        others = f"; there are devices with {', '.join(map(repr, keys))}" if keys else ""
        return f"no device with key {request.key!r} was there for {request.wait:g} s{of_class}{left_out}{event}{others}"

    # ---- inside ----
    def _free(self, lease, now):
        board = lease.board
        self.leases.pop(lease.token, None)
        board.lease, board.since = None, now
        self._note(board.key, f"{board.address} was given back by {lease.user or lease.client}")
        return [("end", board.address, lease.token), *(self._match(board.key, now) if board.address in self.boards else [])]

    def _match(self, key, now):
        """The device that is idle for longest goes to the first request that it fits."""
        out = []
        idle = sorted((b for b in self.boards.values() if b.key == key and b.lease is None), key=lambda b: b.since)
        for r in [r for r in self.requests if r.key == key]:
            board = next((b for b in idle if r.fits(b)), None)
            if board is None:
                continue
            idle.remove(board)
            self.requests.remove(r)
            lease = _Lease(secrets.token_hex(16), r, board, now)
            self.leases[lease.token] = lease
            board.lease, board.since = lease.token, now
            self._note(key, f"{board.address} was lent to {r.user or r.client}")
            out.append(("begin", board.address, lease.token))
            out.append(("grant", r.client, r.number[2], lease.token, board.address, board.facts))
        return out

    # ---- telling ----
    def summary(self, now):
        """What `query_rpc_tracker` shows: "server_info", "queue_info", for each device what it does, and who waits, the next one
        first."""
        queue, devices = {}, []
        for b in self.boards.values():
            q = queue.setdefault(b.key, {"total": 0, "free": 0, "pending": 0})
            q["total"] += 1
            q["free"] += b.lease is None
            lease = self.leases.get(b.lease)
            devices.append({
                "address": b.facts.get("shown") or b.address, "key": b.key, "for": now - b.since,
                "state": "busy" if lease else "idle", "user": lease.user if lease else "",
                "why": "" if lease else self._why_idle(b), "name": b.facts.get("name", ""),
            })  # fmt: skip
        for r in self.requests:
            queue.setdefault(r.key, {"total": 0, "free": 0, "pending": 0})["pending"] += 1
        servers = [{"key": f"server:{b.key}", "addr": b.facts.get("shown") or b.address} for b in self.boards.values()]
        waiting = [{"key": r.key, "user": r.user, "priority": r.priority, "for": now - r.since} for r in self.requests]
        return {"queue_info": queue, "server_info": servers, "devices": devices, "waiting": waiting, "last": dict(self.last)}

    def _why_idle(self, board):
        waiting = sum(r.key == board.key for r in self.requests)
        if waiting:
            return f"the {waiting} waiting want devices of another class"
        others = sorted({r.key for r in self.requests})
        return "nobody waits for its key" + (f"; {', '.join(others)} is waited for" if others else "")
