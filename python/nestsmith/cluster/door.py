"""Connections to a server whose sender is not known yet to be a member (guests).

A guest costs one descriptor and little else: it has no buffers before its first bytes arrive. A guest that is no member after `SECONDS` is
closed. The number of places is limited. When all are taken, the guest that has been silent for longest is closed. So descriptors are
left for members, and a new connection, which may be a member's, always gets a place. Members may share an address with strangers,
so addresses are not used to tell them apart.

This module depends on neither Dask nor TLS. `engine` reports when a guest has become a member.
"""

import asyncio
import collections
import contextlib
import errno
import resource
import socket
import struct
import time

__all__ = ["Door", "Guest", "Notes", "hello_of_length", "hello_of_tls", "places"]

SECONDS = 10.0  # until a connection has shown that it is a member's
MOST_PLACES = 512
KNOWN_PART = 8  # that part of the places is for those whose hello is whole
LINGER_SECONDS = 5.0  # in which a refused guest can read the reason
AT_ONCE = 16  # connections that are taken before others have their turn: few beside those whose hello is whole
NOTE_SECONDS = 60.0
LONGEST_HELLO = 1 << 20  # bytes of a first message
_TLS_HEAD, _TLS_MOST = 5, 1 << 14
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def places():
    """How many guests may wait: half of the descriptors that this process may have; the rest is the members'."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_PLACES if soft == resource.RLIM_INFINITY else max(8, min(MOST_PLACES, soft // 2))


class Notes:
    """At most one line in `NOTE_SECONDS` for each cause.

    Parameters
    ----------
    say : callable, optional
        Gets the lines.
    """

    def __init__(self, say=None):
        self._say, self._seen = say, {}

    def note(self, cause, who):
        """It has happened because of `who`."""
        now = time.monotonic()
        count, told = self._seen.get(cause, (0, -NOTE_SECONDS))
        if now - told < NOTE_SECONDS:
            self._seen[cause] = count + 1, told
            return
        self._seen[cause] = 0, now
        if self._say is not None:
            more = f" and {count} more in the last minutes" if count else ""
            self._say(f"{who:.60}{more}: {cause}")


def hello_of_tls(start):
    """How many bytes there must be before the first message of TLS is whole: those of its head, then all; 0: it is none."""
    if len(start) < _TLS_HEAD:
        return _TLS_HEAD
    kind, major, _, length = struct.unpack("!BBBH", start[:_TLS_HEAD])
    return _TLS_HEAD + length if kind == 22 and major == 3 and 0 < length <= _TLS_MOST else 0


def hello_of_length(start):
    """The same of a message that begins with its length, 8 bytes: it is read in pieces later, so the length is enough."""
    if len(start) < 8:
        return 8
    return 8 if struct.unpack("<Q", start[:8])[0] <= LONGEST_HELLO else 0


class Guest:
    """A connection without a name. `sock` is given away by `take`."""

    def __init__(self, sock, who):
        self.sock, self.who, self.end, self.closed = sock, who, time.monotonic() + SECONDS, False
        self.timer, self.task, self.needs = None, None, 0

    def left(self):
        """Seconds that it has to become a member."""
        return max(0.01, self.end - time.monotonic())


class Door:
    """Takes the connections of listening sockets and keeps them until they have said hello.

    Parameters
    ----------
    hello : callable
        `hello_of_tls` or `hello_of_length`.
    enter : callable
        ``enter(guest)``, a coroutine function: called when the hello is there; its end is that of the guest's wait, and whatever it raises
        closes the connection.
    owners : callable, optional
        ``owners([(socket, address)])``: for each connection whether it may be a member's; None: all may.
    refusal : bytes
        What those hear who may not. Nothing of them is read.
    say : callable, optional
        Gets lines for the log.
    """

    def __init__(self, hello, enter, owners=None, refusal=b"", say=None):
        self._hello, self._enter, self._owners, self._refusal, self.notes = hello, enter, owners, refusal, Notes(say)
        # The oldest first: those who are refused, who said nothing, who have begun, whose hello is whole.
        self._refused, self._silent, self._begun, self._known = (collections.OrderedDict() for _ in range(4))
        self._loop, self._sockets, self.most = asyncio.get_running_loop(), {}, places()

    def __len__(self):
        return sum(len(x) for x in (self._refused, self._silent, self._begun, self._known))

    def watch(self, sock):
        """Takes the connections of a listening socket from now on."""
        with contextlib.suppress(AttributeError, OSError):  # a member speaks first: he is handed to us with his hello
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        self._sockets[sock.fileno()] = sock
        self._loop.add_reader(sock, self._accept, sock)

    def stop(self):
        """Takes no more, and sends all guests away."""
        for sock in self._sockets.values():
            self._loop.remove_reader(sock)
            sock.close()
        self._sockets = {}
        for guests in (self._refused, self._silent, self._begun, self._known):
            for g in list(guests):
                self.dismiss(g)

    # ---- taking connections ----
    def _accept(self, door):
        taken = []
        while len(taken) < AT_ONCE:
            try:
                sock, address = door.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as e:
                if e.errno not in _SCARCE:
                    self.notes.note(f"connections cannot be taken ({e.strerror})", "the system")
                elif self._make_room():
                    continue
                else:
                    self.notes.note(f"no connection can be taken for a while ({e.strerror}); allow more open files (ulimit -n)", "the system")
                self._pause(door)
                break
            sock.setblocking(False)
            while len(self) + len(taken) >= self.most and self._make_room():
                pass
            taken.append((sock, address))
        if taken:
            for (sock, address), welcome in zip(taken, self._owners(taken) if self._owners else [True] * len(taken)):
                self._receive(sock, str(address[0]), welcome)

    def _pause(self, door):
        """Accepting would fail again at once, and again."""
        self._loop.remove_reader(door)
        self._loop.call_later(0.1, lambda: door.fileno() in self._sockets and self._loop.add_reader(door, self._accept, door))

    def _make_room(self):
        for guests in (self._refused, self._silent, self._begun, self._known):
            if guests:
                self._drop(guests)
                return True
        return False

    def _drop(self, guests):
        """Sends the oldest away."""
        guest = next(iter(guests))
        self.notes.note("closed before its time: many connections wait that are not known to be a member's", guest.who)
        self.dismiss(guest)

    def _receive(self, sock, who, welcome):
        guest = Guest(sock, who)
        if not welcome:
            self.notes.note("refused: it belongs to another user of this machine", who)
            # Both directions stay open: a client sends its hello before it reads the reason, and after an end of file it cannot.
            with contextlib.suppress(OSError):
                sock.send(self._refusal)
            self._refused[guest] = None
            guest.timer = self._loop.call_later(LINGER_SECONDS, self.dismiss, guest)
            return
        self._silent[guest] = None
        guest.timer = self._loop.call_later(SECONDS, self._late, guest)
        self._need(guest, self._hello(b""))
        self._loop.add_reader(sock, self._look, guest)
        self._look(guest, woken=False)

    # ---- guests ----
    @staticmethod
    def _need(guest, count):
        """The event loop wakes up when `count` bytes have arrived, and not for each byte before."""
        guest.needs = count
        guest.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _look(self, guest, woken=True):
        if guest.sock is None:
            return
        try:
            start = guest.sock.recv(_TLS_HEAD + _TLS_MOST, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            start = b""
        need = self._hello(start)
        if not start or not need:
            if start:
                self.notes.note("closed: what it says is no hello of a member", guest.who)
            self.dismiss(guest)
            return
        if len(start) < need:
            if woken and guest.needs > len(start):  # woken before there is as much as we need: the other side has closed
                self.dismiss(guest)
                return
            self._need(guest, need)
            self._move(guest, self._begun if len(start) >= _TLS_HEAD else self._silent)
            return
        self._loop.remove_reader(guest.sock)
        self._need(guest, 1)
        while len(self._known) >= max(4, self.most // KNOWN_PART):  # each costs memory
            self._drop(self._known)
        self._move(guest, self._known)
        guest.task = asyncio.ensure_future(self._run(guest))

    def _move(self, guest, to):
        for guests in (self._silent, self._begun, self._known):
            guests.pop(guest, None)
        to[guest] = None

    async def _run(self, guest):
        try:
            await self._enter(guest)
        except Exception:  # noqa: BLE001 - what strangers send can fail in any way
            self.notes.note("closed: it has not shown that it is a member", guest.who)
        finally:
            self.dismiss(guest)

    def _late(self, guest):
        self.notes.note(f"closed: {SECONDS:g} s have passed, and it is not known to be a member", guest.who)
        self.dismiss(guest)

    def _forget(self, guest):
        for guests in (self._refused, self._silent, self._begun, self._known):
            guests.pop(guest, None)
        guest.timer.cancel()

    def take(self, guest):
        """The guest is a member; its connection is the caller's."""
        self._forget(guest)
        guest.sock = guest.task = None

    def dismiss(self, guest):
        """Closes the connection, if it is still a guest's."""
        self._forget(guest)
        task, sock, guest.task, guest.sock = guest.task, guest.sock, None, None
        if sock is not None:
            self._loop.remove_reader(sock)
            with contextlib.suppress(OSError):
                sock.close()
        if task is not None and task is not asyncio.current_task():
            task.cancel()
