"""Start SGLang servers at the same time and wait until they answer; all are stopped, however the block ends."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from ddtree.workbook.bench_serving.client import Client, HttpServer, Load, NotServingError, RefusedError
from ddtree.workbook.bench_serving.identity_layers import add_identity_layers, add_identity_layers_to_drafter
from ddtree.workbook.bench_serving.requests import Planned, planned
from ddtree.workbook.params import ServingParams
from ddtree.workbook.records import git_revision


def arguments(planned: Planned, params: ServingParams, models: Models, *, port: int, nccl_port: int) -> list[str]:
    """What follows the program. `params.server_arguments` come last, so they win; texts are split as a shell would."""
    given: dict[str, str | bool | int | float] = {
        "model_path": shlex.quote(str(models.target)),
        "host": "127.0.0.1",
        "port": port,
        "nccl_port": nccl_port,
        "tp_size": params.tp,
        "random_seed": params.seed % 2**31,
        "cuda_graph_bs_decode": " ".join(map(str, graph_sizes(params.batches))),
    }
    if planned.method != "plain":
        given |= {
            "speculative_algorithm": planned.method.upper(),
            "speculative_draft_model_path": shlex.quote(str(models.drafter)),
            "speculative_draft_attention_backend": "triton",
        }
    if planned.method == "dflash":
        given["speculative_num_draft_tokens"] = models.block_size
    return [part for name, value in (given | params.server_arguments).items() for part in _argument(name, value)]


def variables(planned: Planned, params: ServingParams) -> dict[str, str]:
    """DDTREE's settings, which SGLang's command line has no place for; none for other servers."""
    if planned.method != "ddtree":
        return {}
    return {
        "DDTREE_BUDGET": str(planned.budget),
        "DDTREE_TOPK_CAP": str(planned.topk_cap),
        "DDTREE_DRAFT_TEMPERATURE": str(params.draft_temperature),
    }


def graph_sizes(batches: Sequence[int]) -> list[int]:
    """Batches that decode under a CUDA graph: those asked, and powers of two below, for requests that end first."""
    powers = {2**power for power in range(max(batches).bit_length()) if 2**power <= max(batches)}
    return sorted(powers | set(batches))


def shown(program: Sequence[str], words: Sequence[str], environment: dict[str, str]) -> str:
    """The command as one types it, folders by their last name."""
    names = [f"{name}={value}" for name, value in environment.items()]
    plain = [Path(word).name if word.startswith("/") else word for word in (*names, *program, *words)]
    return shlex.join(plain)


def _argument(name: str, value: str | bool | int | float) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else []
    return [flag, *(shlex.split(value) if isinstance(value, str) else [str(value)])]


@dataclass(frozen=True, slots=True)
class Models:
    """Folders in Hugging Face layout, and what servers must know of them before they load any."""

    target: Path
    drafter: Path
    layers: int  # of the target, identity layers included
    block_size: int  # of the drafter, its root included


def source_folders(params: ServingParams) -> tuple[Path, Path]:
    """Target and drafter as named: folders as they are, zoo names from the cache.

    Raises FileNotFoundError, ValueError or RuntimeError with a sentence that says what was looked for.
    """
    return _target(params.target), _drafter(params.target, params.drafter)


@contextlib.contextmanager
def models(target: Path, drafter: Path, extra_layers: int) -> Iterator[Models]:
    """The pair with `extra_layers` identity layers; deepened copies are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ddtree-deep-") as place:
        if extra_layers:
            target = add_identity_layers(target, Path(place) / f"target-{extra_layers}", extra_layers)
            drafter = add_identity_layers_to_drafter(drafter, Path(place) / f"drafter-{extra_layers}", extra_layers)
        block_size = _entry(drafter, "block_size")
        yield Models(target, drafter, layers=_entry(target, "num_hidden_layers"), block_size=block_size)


def layers_of(target: Path) -> int:
    """Of a target's folder."""
    return _entry(target, "num_hidden_layers")


def _target(name: str) -> Path:
    if (folder := _folder(name)) is not None:
        return folder
    from ddtree.models.zoo import fetch  # a machine that only serves may lack what the zoo needs

    return fetch(name)


def _drafter(target: str, name: str) -> Path:
    if (folder := _folder(name)) is not None:
        return folder
    from ddtree.models.zoo import ZOO, fetch_drafter

    return fetch_drafter(name) if name in ZOO else fetch_drafter(target, name)


def _folder(name: str) -> Path | None:
    """The folder of that path, its last name kept; a bare name is the zoo's before it is a folder's."""
    folder = Path(name).expanduser()
    return folder.absolute() if "/" in name and folder.is_dir() else None


def _entry(folder: Path, name: str) -> int:
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no config.json, so it holds no model.")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found = config.get(name)
    if not isinstance(found, int):
        raise ValueError(f"{path} has {name} {found!r}; a number is needed.")
    return found


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


Item = TypeVar("Item")
SETTLE_S = 0.02  # a server with overlap runs one more step after a reply; the next server on its GPU starts after that


@dataclass(frozen=True, slots=True)
class Server:
    """A planned server that runs."""

    planned: Planned
    running: Running

    @property
    def name(self) -> str:
        return self.planned.name

    def ask(self, prompts: Sequence[Sequence[int]], *, temperature: float, tokens: int, seeds: Sequence[int]) -> Load:
        """Whole replies of exactly `tokens` tokens, the prompts asked at once.

        DDTREE draws from the seed given for each; the others draw from the engine's own generator, since SGLang reads a
        request's seed only when it is deterministic throughout.
        """
        seeded = self.planned.method == "ddtree" and temperature > 0
        each: list[dict[str, Any]] = [{"sampling_seed": seed} if seeded else {} for seed in seeds]
        load = self.running.client.together(
            prompts, each=each, temperature=temperature, max_new_tokens=tokens, ignore_eos=True
        )
        for reply in load.replies:
            if reply.tokens != tokens:
                raise RuntimeError(f"{self.name} answered {reply.tokens} tokens where {tokens} were asked.")
        time.sleep(SETTLE_S)
        return load


def in_turn(items: Sequence[Item], turn: int) -> Iterator[Item]:
    """All items, each turn starting one further, so that none is always measured first."""
    first = turn % len(items)
    yield from items[first:]
    yield from items[:first]


def filled(prompts: Sequence[Item], batch: int, turn: int) -> list[Item]:
    """`batch` prompts, going round; the next turn goes on where this one ends."""
    return [prompts[(turn * batch + place) % len(prompts)] for place in range(batch)]


Rows = list[dict[str, Any]]


@contextlib.contextmanager
def group(
    params: ServingParams,
    extra_layers: int,
    folders: tuple[Path, Path],
    logs: Path,
    program: Sequence[str],
    say: Callable[[str], object],
) -> Iterator[tuple[list[Server], Rows]]:
    """The group's servers, and their rows of the record."""
    plans = planned(params, extra_layers)
    if params.urls:
        layers = layers_of(folders[0]) + extra_layers
        with attached(params.urls, timeout_s=params.start_timeout_s) as running:
            yield _servers(plans, running, layers, {}, attached_to=params.urls)
        return
    with models(*folders, extra_layers) as pair:
        ports = free_ports(2 * len(plans))
        launches, commands = [], {}
        for plan, port, nccl_port in zip(plans, ports[::2], ports[1::2], strict=True):
            words = arguments(plan, params, pair, port=port, nccl_port=nccl_port)
            environment = variables(plan, params)
            commands[plan.name] = shown(program, words, environment)
            log = logs / f"{plan.name}-{extra_layers}.log"
            launches.append(Launch(plan.name, (*program, *words), environment, port, log))
        with started(launches, timeout_s=params.start_timeout_s, say=say) as running:
            yield _servers(plans, running, pair.layers, commands, attached_to={})


def _servers(
    plans: Sequence[Planned],
    running: Sequence[Running],
    layers: int,
    commands: Mapping[str, str],
    *,
    attached_to: Mapping[str, str],
) -> tuple[list[Server], Rows]:
    servers = [Server(plan, run) for plan, run in zip(plans, running, strict=True)]
    # Of each row, since a record may be added to on another day, by other code.
    made = {"git_revision": git_revision(), "ready_utc": datetime.now(UTC).isoformat(timespec="seconds")}
    rows = [
        {
            "name": server.name,
            "method": server.planned.method,
            "budget": server.planned.budget,
            "topk_cap": server.planned.topk_cap,
            "extra_layers": server.planned.extra_layers,
            "layers": layers,
            "command": commands.get(server.name, ""),
            "start_s": server.running.start_s,
            "url": attached_to.get(server.name),
            **made,
        }
        for server in servers
    ]
    return servers, rows
