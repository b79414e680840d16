"""Start SGLang servers at the same time and wait until they answer; all are stopped, however the block ends.

A group is one target, with or without identity layers, and all servers that serve it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
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
from typing import Any

import httpx
import psutil

from ddtree.workbook.bench_serving.client import BatchReply, Client, NotServingError, RefusedError
from ddtree.workbook.bench_serving.identity_layers import add_identity_layers, add_identity_layers_to_drafter
from ddtree.workbook.params import ServingParams
from ddtree.workbook.records import git_revision

SGLANG = (sys.executable, "-m", "sglang.launch_server")
PORTS = range(20000, 32000)  # below those that the system gives to outgoing connections
TAIL_LINES = 25  # of a dead server's log
POLL_S = 0.5
CRASH_S = 3.0  # a crashing server closes its connections before it exits
GRACE_S = 3.0  # from SIGTERM to SIGKILL
KILL_S = 20.0
COOL_DOWN_S = 0.02  # with overlap, a server runs one more step after a reply; the next server on its GPU waits for it

Say = Callable[[str], object]
Rows = list[dict[str, Any]]


class ServerDiedError(RuntimeError):
    """A started server exited or did not become ready; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server to be measured; only DDTREE has `budget` and `topk_cap`."""

    name: str
    method: str  # "plain", "dflash" or "ddtree"
    budget: int | None
    topk_cap: int | None
    extra_layers: int

    def keys(self) -> dict[str, Any]:
        """The columns that identify its rows in a record."""
        return {"extra_layers": self.extra_layers, "name": self.name, "method": self.method, "budget": self.budget}


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """A pair in Hugging Face layout, and what servers must be told about it before they load it."""

    target: Path
    drafter: Path
    layers: int  # of the target, identity layers included
    block_size: int  # of the drafter, its root included


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one server."""

    spec: ServerSpec
    command: tuple[str, ...]
    environment: dict[str, str]  # added to this process's
    port: int
    log: Path


Running = tuple[Launch, subprocess.Popen[bytes]]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    spec: ServerSpec
    client: Client
    start_s: float | None = None  # from its start to its first answer; None where it was running already
    command: str = ""

    @property
    def name(self) -> str:
        return self.spec.name

    def request(
        self, prompts: Sequence[Sequence[int]], *, temperature: float, tokens: int, seeds: Sequence[int]
    ) -> BatchReply:
        """Whole replies of exactly `tokens` tokens, the prompts sent as one request.

        DDTREE draws from the seed given for each; the others draw from the engine's own generator, since SGLang reads a
        request's seed only in its deterministic mode. Raises RuntimeError for a reply of another length.
        """
        seeded = self.spec.method == "ddtree" and temperature > 0
        each: list[dict[str, Any]] = [{"sampling_seed": seed} if seeded else {} for seed in seeds]
        batch = self.client.request_batch(
            prompts, each=each, temperature=temperature, max_new_tokens=tokens, ignore_eos=True
        )
        for reply in batch.replies:
            if reply.tokens != tokens:
                raise RuntimeError(f"{self.name} answered {reply.tokens} tokens; {tokens} were requested.")
        time.sleep(COOL_DOWN_S)
        return batch


def server_specs(params: ServingParams, extra_layers: int) -> list[ServerSpec]:
    """The servers of one group: those of `params.urls`, else plain, DFLASH and a DDTREE for each budget."""
    specs = []
    for name in params.urls or ["plain", "dflash", *(f"ddtree-{budget}" for budget in params.budgets)]:
        method, _, budget = name.partition("-")
        nodes, cap = (int(budget), params.topk_cap) if method == "ddtree" else (None, None)
        specs.append(ServerSpec(name, method, nodes, cap, extra_layers))
    return specs


@contextlib.contextmanager
def server_group(
    params: ServingParams, extra_layers: int, sources: tuple[Path, Path], logs: Path, program: Sequence[str], say: Say
) -> Iterator[tuple[list[Server], Rows]]:
    """The running servers of a group, and their rows of the record. `sources` are the folders of target and drafter."""
    specs = server_specs(params, extra_layers)
    if params.urls:
        layers = _config_number(sources[0], "num_hidden_layers") + extra_layers
        with attached(specs, params.urls, timeout_s=params.start_timeout_s) as servers:
            yield servers, _server_rows(servers, layers, params.urls)
        return
    with model_folders(*sources, extra_layers) as folders:
        ports = free_ports(2 * len(specs))
        launches = []
        for spec, port, nccl_port in zip(specs, ports[::2], ports[1::2], strict=True):
            command = (*program, *launch_arguments(spec, params, folders, port=port, nccl_port=nccl_port))
            log = logs / f"{spec.name}-{extra_layers}.log"
            launches.append(Launch(spec, command, launch_environment(spec, params), port, log))
        with started(launches, timeout_s=params.start_timeout_s, say=say) as servers:
            yield servers, _server_rows(servers, folders.layers, {})


def _server_rows(servers: Sequence[Server], layers: int, urls: Mapping[str, str]) -> Rows:
    # In each row, since other code may add to a record on another day.
    origin = {"git_revision": git_revision(), "ready_utc": datetime.now(UTC).isoformat(timespec="seconds")}
    rows = []
    for server in servers:
        row = server.spec.keys() | {"topk_cap": server.spec.topk_cap, "layers": layers, "command": server.command}
        rows.append(row | {"start_s": server.start_s, "url": urls.get(server.name), **origin})
    return rows


def launch_arguments(
    spec: ServerSpec, params: ServingParams, folders: ModelFolders, *, port: int, nccl_port: int
) -> list[str]:
    """What follows the program. `params.server_arguments` come last, so they win; texts are split as by a shell."""
    given: dict[str, str | bool | int | float] = {
        "model_path": shlex.quote(str(folders.target)),
        "host": "127.0.0.1",
        "port": port,
        "nccl_port": nccl_port,
        "tp_size": params.tp,
        "random_seed": params.seed % 2**31,
        "cuda_graph_bs_decode": " ".join(map(str, cuda_graph_batches(params.batches))),
    }
    if spec.method != "plain":
        given |= {
            "speculative_algorithm": spec.method.upper(),
            "speculative_draft_model_path": shlex.quote(str(folders.drafter)),
            "speculative_draft_attention_backend": "triton",
        }
    if spec.method == "dflash":
        given["speculative_num_draft_tokens"] = folders.block_size
    words: list[str] = []
    for name, value in (given | params.server_arguments).items():
        if value is not False:
            words.append("--" + name.replace("_", "-"))
        if not isinstance(value, bool):
            words += shlex.split(value) if isinstance(value, str) else [str(value)]
    return words


def launch_environment(spec: ServerSpec, params: ServingParams) -> dict[str, str]:
    """DDTREE's settings, for which SGLang's command line has no arguments; none for other servers."""
    if spec.method != "ddtree":
        return {}
    return {
        "DDTREE_BUDGET": str(spec.budget),
        "DDTREE_TOPK_CAP": str(spec.topk_cap),
        "DDTREE_DRAFT_TEMPERATURE": str(params.draft_temperature),
    }


def cuda_graph_batches(batches: Sequence[int]) -> list[int]:
    """Batches that decode under a CUDA graph: those measured, and powers of two below for what is left of them."""
    powers = {2**power for power in range(max(batches).bit_length()) if 2**power <= max(batches)}
    return sorted(powers | set(batches))


def command_text(launch: Launch) -> str:
    """The command as one types it, folders by their last name."""
    variables = [f"{name}={value}" for name, value in launch.environment.items()]
    return shlex.join(Path(word).name if word.startswith("/") else word for word in (*variables, *launch.command))


def source_folders(params: ServingParams) -> tuple[Path, Path]:
    """Target and drafter as named: folders as they are, zoo names from the cache.

    Raises FileNotFoundError, ValueError or RuntimeError with a sentence that says what was looked for.
    """
    target, drafter = _local_folder(params.target), _local_folder(params.drafter)
    if target is None or drafter is None:
        from ddtree.models.zoo import ZOO, fetch, fetch_drafter  # a machine that only serves may lack its imports

        target = target or fetch(params.target)
        if drafter is None:
            names = (params.drafter,) if params.drafter in ZOO else (params.target, params.drafter)
            drafter = fetch_drafter(*names)
    return target, drafter


def _local_folder(name: str) -> Path | None:
    """The folder of that path, symlinks kept; a name without a slash is never a folder but a zoo name."""
    folder = Path(name).expanduser()
    return folder.absolute() if "/" in name and folder.is_dir() else None


@contextlib.contextmanager
def model_folders(target: Path, drafter: Path, extra_layers: int) -> Iterator[ModelFolders]:
    """The pair with `extra_layers` identity layers; copies with added layers are deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="ddtree-deep-") as place:
        if extra_layers:
            target = add_identity_layers(target, Path(place) / f"target-{extra_layers}", extra_layers)
            drafter = add_identity_layers_to_drafter(drafter, Path(place) / f"drafter-{extra_layers}", extra_layers)
        block_size = _config_number(drafter, "block_size")
        yield ModelFolders(target, drafter, _config_number(target, "num_hidden_layers"), block_size)


def _config_number(folder: Path, name: str) -> int:
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no config.json, so it does not hold a model.")
    found = json.loads(path.read_text(encoding="utf-8")).get(name)
    if not isinstance(found, int):
        raise ValueError(f"{path} has {name} {found!r}; it must be a whole number.")
    return found


def free_ports(count: int) -> list[int]:
    """`count` different ports of `PORTS` that nobody listens on now. Raises OSError where there are fewer."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):  # so that two runs on one machine try different ones
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"only {len(found)} ports from {PORTS.start} to {PORTS.stop - 1} are free; {count} are needed.")


@contextlib.contextmanager
def started(launches: Sequence[Launch], *, timeout_s: float, say: Say = print) -> Iterator[list[Server]]:
    """All of them, warm, in the order given.

    Raises ServerDiedError when one exits, or is not ready within `timeout_s`; also for a failure inside the block that
    the exit of a server explains.
    """
    running: list[Running] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_stop, running)
        for launch in launches:
            running.append((launch, _start(launch)))
        clients = [stack.enter_context(_client(f"http://127.0.0.1:{launch.port}")) for launch in launches]
        servers = _wait_until_ready(running, clients, timeout_s, say)
        try:
            yield servers
        except (httpx.TransportError, RefusedError):
            end = time.monotonic() + CRASH_S
            while time.monotonic() < end:
                _check_running(running)
                time.sleep(POLL_S)
            raise


@contextlib.contextmanager
def attached(specs: Sequence[ServerSpec], urls: Mapping[str, str], *, timeout_s: float) -> Iterator[list[Server]]:
    """Servers that are running already, by name; they are left running. Raises NotServingError."""
    with contextlib.ExitStack() as stack:
        servers = [Server(spec, stack.enter_context(_client(urls[spec.name]))) for spec in specs]
        for server in servers:
            try:
                server.client.wait(timeout_s=timeout_s)
            except NotServingError as error:
                raise NotServingError(f"{server.name} at {server.client.url}: {error}") from error
        yield servers


def _client(url: str) -> contextlib.closing[Client]:
    return contextlib.closing(Client(url))


def _start(launch: Launch) -> subprocess.Popen[bytes]:
    launch.log.parent.mkdir(parents=True, exist_ok=True)
    with launch.log.open("wb") as log:
        return subprocess.Popen(
            launch.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | launch.environment,
            start_new_session=True,  # its own process group: children are stopped with it, and Ctrl-C reaches only us
        )


def _wait_until_ready(
    running: Sequence[Running], clients: Sequence[Client], timeout_s: float, say: Say
) -> list[Server]:
    began = time.monotonic()
    ready: dict[str, Server] = {}
    while True:
        for (launch, _), client in zip(running, clients, strict=True):
            name = launch.spec.name
            if name in ready:
                continue
            _check_running(running)
            try:
                client.wait(timeout_s=0)
            except (NotServingError, httpx.TransportError) as error:
                if (waited := time.monotonic() - began) > timeout_s:
                    why = f"{name} does not serve after {waited:.0f} s ({error})."
                    raise ServerDiedError(f"{why} Its log ends:\n{_tail(launch.log)}") from error
                continue
            ready[name] = Server(launch.spec, client, time.monotonic() - began, command_text(launch))
            say(f"{name} serves after {ready[name].start_s:.0f} s")
        if len(ready) == len(running):
            return [ready[launch.spec.name] for launch, _ in running]
        time.sleep(POLL_S)


def _check_running(running: Sequence[Running]) -> None:
    for launch, process in running:
        if (code := process.poll()) is not None:
            raise ServerDiedError(f"{launch.spec.name} ended with exit code {code}. Its log ends:\n{_tail(launch.log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(lines) if lines else "(it is empty)"


def _stop(running: Sequence[Running]) -> None:
    """End every process group, kill what is left after `GRACE_S`, and wait until none of its processes runs."""
    members: list[psutil.Process] = []
    for _, process in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            leader = psutil.Process(process.pid)
            members += [leader, *leader.children(recursive=True)]
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
        for _, process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        end = time.monotonic() + patience_s
        while time.monotonic() < end and any(map(_is_running, members)):
            time.sleep(0.02)
    for _, process in running:
        process.poll()  # takes its exit code


def _is_running(member: psutil.Process) -> bool:
    """A zombie has released what it held. `psutil.wait_procs` would wait for it, in a container perhaps for ever."""
    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
