"""Servers started at the same time and waited for; whatever was started is stopped, however the block ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from ddtree.serving.client import Client, HttpServer, NotServingError, RefusedError

SGLANG = (sys.executable, "-m", "sglang.launch_server")
PORTS = range(20000, 32000)
TAIL_LINES = 25
EVERY_S = 0.5
DYING_S = 3.0  # a dying server closes its connections first
POLITE_S = 3.0  # from being asked to end to being ended
GONE_S = 20.0


class ServerDiedError(RuntimeError):
    """A started server ended by itself or did not come to serve; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What starts one server."""

    name: str
    words: tuple[str, ...]  # program and arguments
    environment: dict[str, str]  # added to this process's own
    port: int
    log: Path


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. `start_s` is from its start to its first answer; None where it ran before."""

    name: str
    url: str
    client: Client
    start_s: float | None


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now, below those that the system gives to whoever connects somewhere."""
    found: list[int] = []
    start = PORTS.start + os.getpid() * 97 % len(PORTS)  # two runs on one machine start looking at different places
    for port in itertools.chain(range(start, PORTS.stop), range(PORTS.start, start)):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"only {len(found)} ports from {PORTS.start} to {PORTS.stop - 1} are free; {count} are needed.")


@contextlib.contextmanager
def started(
    launches: Sequence[Launch], *, timeout_s: float, say: Callable[[str], object] = print
) -> Iterator[list[Running]]:
    """All of them, warm, in the order given.

    Raises ServerDiedError when one ends, or does not serve within `timeout_s`, also for a failure inside the block
    that one's end explains.
    """
    processes: dict[str, subprocess.Popen[bytes]] = {}
    clients: list[HttpServer] = []
    try:
        for launch in launches:
            processes[launch.name] = _process(launch)
        for launch in launches:
            clients.append(HttpServer(f"http://127.0.0.1:{launch.port}"))
        running = _awaited(launches, clients, processes, timeout_s, say)
        try:
            yield running
        except (httpx.TransportError, RefusedError):
            end = time.monotonic() + DYING_S
            while time.monotonic() < end:
                _refuse_dead(launches, processes)
                time.sleep(EVERY_S)
            raise
    finally:
        for client in clients:
            client.close()
        _stop(list(processes.values()))


@contextlib.contextmanager
def attached(urls: dict[str, str], *, timeout_s: float) -> Iterator[list[Running]]:
    """Servers that run already, by name; they are left running. Raises NotServingError."""
    servers = {name: HttpServer(url) for name, url in urls.items()}
    try:
        running = []
        for name, server in servers.items():
            client = Client(server)
            try:
                client.wait(timeout_s=timeout_s)
            except NotServingError as error:
                raise NotServingError(f"{name} at {server.url}: {error}") from error
            running.append(Running(name, server.url, client, None))
        yield running
    finally:
        for server in servers.values():
            server.close()


def _process(launch: Launch) -> subprocess.Popen[bytes]:
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    with launch.log.open("wb") as log:
        return subprocess.Popen(
            launch.words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | launch.environment,
            start_new_session=True,  # a group of its own: its children are stopped with it, and Ctrl-C is ours alone
        )


def _awaited(
    launches: Sequence[Launch],
    servers: Sequence[HttpServer],
    processes: dict[str, subprocess.Popen[bytes]],
    timeout_s: float,
    say: Callable[[str], object],
) -> list[Running]:
    began = time.monotonic()
    ready: dict[str, Running] = {}
    while len(ready) < len(launches):
        for launch, server in zip(launches, servers, strict=True):
            if launch.name in ready:
                continue
            _refuse_dead(launches, processes)
            client = Client(server)
            try:
                client.wait(timeout_s=0)
            except (NotServingError, httpx.TransportError) as error:
                waited = time.monotonic() - began
                if waited > timeout_s:
                    why = f"{launch.name} does not serve after {waited:.0f} s ({error})."
                    raise ServerDiedError(f"{why} Its log ends:\n{_tail(launch.log)}") from error
                continue
            ready[launch.name] = Running(launch.name, server.url, client, time.monotonic() - began)
            say(f"{launch.name} serves after {ready[launch.name].start_s:.0f} s")
        if len(ready) < len(launches):
            time.sleep(EVERY_S)
    return [ready[launch.name] for launch in launches]


def _refuse_dead(launches: Sequence[Launch], processes: dict[str, subprocess.Popen[bytes]]) -> None:
    for launch in launches:
        code = processes[launch.name].poll()
        if code is not None:
            raise ServerDiedError(f"{launch.name} ended with exit code {code}. Its log ends:\n{_tail(launch.log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(lines) if lines else "(it is empty)"


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask every group to end, then end it, and wait until none of its processes runs."""
    members = [member for process in processes for member in _family(process.pid)]
    for process in processes:
        _signal(process.pid, signal.SIGTERM)
    _wait_for(processes, members, POLITE_S)
    for process in processes:
        _signal(process.pid, signal.SIGKILL)
    _wait_for(processes, members, GONE_S)


def _family(pid: int) -> list[psutil.Process]:
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _wait_for(processes: Sequence[subprocess.Popen[bytes]], members: Sequence[psutil.Process], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for process in processes:
            process.poll()  # takes its exit code
        if not any(_runs(member) for member in members):
            return
        time.sleep(0.02)


def _runs(member: psutil.Process) -> bool:
    """A zombie has ended and given back what it held; in a container perhaps nobody takes its exit code."""
    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
