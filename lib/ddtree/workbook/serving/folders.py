"""The folders of target and drafter that a group of servers loads, deepened where it has identity layers."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.models.deepen import deepen, deepen_drafter
from ddtree.workbook.params import ServingParams


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
            target = deepen(target, Path(place) / f"target-{extra_layers}", extra_layers)
            drafter = deepen_drafter(drafter, Path(place) / f"drafter-{extra_layers}", extra_layers)
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
