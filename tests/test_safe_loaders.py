"""Nothing that the package reads can run code: a safe YAML loader, safetensors, no pickle, no code from a hub."""

import ast
from pathlib import Path

import nbformat
import pytest
import yaml
from ddtree.workbook import params_validation
from ddtree.workbook.paths import project_root

SERIALISERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADERS = {"torch.load", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"}
LOADERS |= {"pd.read_pickle", "pandas.read_pickle", "eval", "exec", "torch.hub.load"}
SAFE_YAML = {"_StrictLoader", "yaml.SafeLoader", "yaml.CSafeLoader"}


def unsafe(source: str) -> list[str]:
    """What in Python source could run code that came as data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in SERIALISERS]
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found += [module] * (module in SERIALISERS) + sorted(named & (LOADERS | {"yaml.load"}))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            found += [name] * (name in LOADERS)
            loader = ast.unparse(given["Loader"]) if "Loader" in given else ""
            found += [name] * (name in ("yaml.load", "yaml.load_all") and loader not in SAFE_YAML)
            found += [
                f"{name}({option}={ast.unparse(given[option])})"
                for option in ("trust_remote_code", "allow_pickle")
                if option in given and ast.unparse(given[option]) != "False"
            ]
            found += [f"{name} without safetensors"] * (_loads_a_model(name) and "use_safetensors" not in source)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            keys = [(ast.unparse(key), ast.unparse(value)) for key, value in pairs if key is not None]
            found += [f"{key}: {value}" for key, value in keys if "trust_remote_code" in key and value != "False"]
    return found


def _loads_a_model(name: str) -> bool:
    """GGUF, which AutoModel reads in smollm2.py, holds tensors alone and is checked by its digest."""
    return name.endswith("Model.from_pretrained")


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import dill as d",
        "from joblib import load",
        "torch.load(path)",
        "from torch import load",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.full_load(text)",
        "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "eval(text)",
        "A.from_pretrained(path, trust_remote_code=True)",
        "A.from_pretrained(path, trust_remote_code=wanted)",
        "options = {'trust_remote_code': True}",
        "DFlashDraftModel.from_pretrained(path)",
    ],
)
def test_search_finds_what_is_unsafe(source: str) -> None:
    assert len(unsafe(source)) == 1


def test_search_lets_safe_ways_pass() -> None:
    assert (
        unsafe("yaml.safe_load(t); yaml.load(t, Loader=_StrictLoader); A.from_pretrained(p, trust_remote_code=False)")
        == []
    )
    assert unsafe("ast.literal_eval(text); model.eval(); json.load(file)") == []


@pytest.mark.parametrize("folder", ["lib", "notebooks"])
def test_nothing_unsafe_is_there(folder: str) -> None:
    sources = dict(_sources(project_root() / folder))
    assert len(sources) >= 3
    assert {name: found for name, source in sources.items() if (found := unsafe(source))} == {}


def _sources(folder: Path) -> list[tuple[str, str]]:
    modules = [(path.name, path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    for path in folder.glob("*.ipynb"):
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        modules.append((path.name, "\n".join(cells)))
    return modules


def test_project_s_yaml_loader_is_a_safe_one() -> None:
    assert issubclass(params_validation._StrictLoader, yaml.SafeLoader)
    with pytest.raises(params_validation.YamlError, match="could not determine a constructor"):
        params_validation.parse_value("seed", "!!python/object/apply:os.getpid []")
