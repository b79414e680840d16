"""The models known by name: the target in the cache, the drafter in the package, and what was restored from it."""

from dataclasses import dataclass
from pathlib import Path

from ddtree.models.cache_folder import cache_folder, damage
from ddtree.models.weight_files import damaged_weights
from ddtree.models.zoo import ASSETS, ZOO
from ddtree.workbook.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One folder of the model cache; `damage` says in words what is wrong with its files, None if they are whole."""

    name: str
    fetched: bool
    damage: str | None


def target_entry(model: str) -> CacheEntry:
    """The target of a zoo model, with the contents of its files checked."""
    folder = cache_folder() / model
    return CacheEntry(model, folder.is_dir(), damage(folder, hashes=True) if folder.is_dir() else None)


def drafter_entries(model: str) -> list[CacheEntry]:
    """What was restored from the drafter's asset; a cache may hold the drafters of several releases."""
    pattern = f"{ZOO[model].drafter_asset}-{'[0-9a-f]' * 12}"
    folders = sorted(path for path in cache_folder().glob(pattern) if path.is_dir())
    return [CacheEntry(folder.name, True, damage(folder, hashes=True)) for folder in folders]


def examine_target(entry: CacheEntry) -> Finding:
    subject = f"model {entry.name}"
    if not entry.fetched:
        return Finding(subject, "missing", "not fetched yet (98 MB, once)", f"ddtree fetch {entry.name}")
    if entry.damage:
        remedy = f"ddtree fetch --verify {entry.name}"
        return Finding(subject, "missing", f"damaged in the cache: {entry.damage}", remedy)
    return Finding(subject, "ok", "in the cache, every file as it was fetched")


def examine_drafter(model: str, asset: Path, entries: list[CacheEntry]) -> Finding:
    """The asset is needed; what was restored from it is made again whenever it is absent."""
    subject = f"drafter of {model}"
    if problem := asset_problem(asset):
        remedy = "restore it from the repository (git checkout), or install ddtree again"
        return Finding(subject, "missing", f"the weights that ship in {asset.name} are unusable: {problem}", remedy)
    for entry in entries:
        if entry.damage:
            remedy = f"ddtree fetch --verify {model}"
            return Finding(subject, "missing", f"{entry.name} is damaged in the cache: {entry.damage}", remedy)
    return Finding(subject, "ok", f"ships with ddtree ({asset.name})" + (", restored in the cache" if entries else ""))


def asset_problem(asset: Path) -> str | None:
    """What is wrong with a drafter's folder in the package, in words."""
    if not (asset / "config.json").is_file():
        return "config.json is absent"
    if not list(asset.glob("*.safetensors")):
        return "no *.safetensors is there"
    return damaged_weights(asset)


def asset_folder(model: str) -> Path:
    return ASSETS / ZOO[model].drafter_asset
