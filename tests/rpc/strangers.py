"""Strangers at a port: `strangers.py PORT SILENT HALF SLOW WHOLE`. Each connects from an address of its own or from 127.0.0.1, says nothing, or
half of a hello of TLS, or a byte of one a second, or a whole one and no more, and comes again whenever it is closed. Ends with its standard input."""

import contextlib
import resource
import selectors
import socket
import ssl
import sys
import time

PORT, SILENT, HALF, SLOW, WHOLE = map(int, sys.argv[1:])
_said = ssl.MemoryBIO()
with contextlib.suppress(ssl.SSLWantReadError):
    ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), _said, server_hostname="x").do_handshake()
HELLO = _said.read()
resource.setrlimit(resource.RLIMIT_NOFILE, (min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)


class Stranger:
    def __init__(self, number):
        kinds = ("silent", SILENT), ("half", HALF), ("slow", SLOW), ("whole", WHOLE)
        self.kind = [kind for kind, count in kinds for _ in range(count)][number]
        self.address = "127.0.0.1" if number % 3 == 0 else f"127.{1 + number % 200}.{number // 200 % 250}.{2 + number % 250}"
        self.sock, self.said, self.next = None, 0, 0.0

    def come(self, eyes):
        s = socket.socket()
        s.setblocking(False)
        try:
            s.bind((self.address, 0))
            s.connect(("127.0.0.1", PORT))
        except BlockingIOError:
            pass
        except OSError:
            s.close()
            self.next = time.monotonic() + 1
            return
        self.sock, self.said, self.next = s, 0, time.monotonic() + 0.2
        eyes.register(s, selectors.EVENT_READ, self)

    def go(self, eyes):
        eyes.unregister(self.sock)
        self.sock.close()
        self.sock, self.next = None, time.monotonic() + 1

    def act(self, eyes):
        if self.sock is None:
            self.come(eyes)
        elif self.kind != "silent" and (self.kind == "slow" or not self.said):
            n = {"slow": 1, "half": 6, "whole": len(HELLO)}[self.kind]
            with contextlib.suppress(BlockingIOError):
                try:
                    self.said += self.sock.send(HELLO[self.said : self.said + n])
                except BlockingIOError:
                    raise
                except OSError:
                    self.go(eyes)
                    return
            self.next = time.monotonic() + 1
        else:
            self.next = time.monotonic() + 3600


eyes, all_of_them = selectors.DefaultSelector(), [Stranger(k) for k in range(SILENT + HALF + SLOW + WHOLE)]
eyes.register(sys.stdin, selectors.EVENT_READ, None)
told = False
while True:
    now = time.monotonic()
    for s in all_of_them:
        if s.next <= now:
            s.act(eyes)
    if not told and all(s.sock is not None for s in all_of_them):
        print("there", flush=True)
        told = True
    for key, _ in eyes.select(0.1):
        if key.data is None:
            sys.exit()
        with contextlib.suppress(BlockingIOError):
            try:
                if not key.data.sock.recv(4096):
                    key.data.go(eyes)
            except BlockingIOError:
                raise
            except OSError:
                key.data.go(eyes)
