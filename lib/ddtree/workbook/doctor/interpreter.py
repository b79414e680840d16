"""The interpreter that runs `ddtree`: its version against requires-python, and how its pip is called."""

from packaging.specifiers import SpecifierSet

from ddtree.workbook.doctor.finding import Finding


def examine_python(version: str, executable: str, wanted: SpecifierSet) -> Finding:
    if wanted.contains(version, prereleases=True):
        return Finding("python", "ok", f"{version}, {executable}")
    remedy = f"make an environment with another Python: Python {wanted}"
    return Finding("python", "missing", f"{version}, {executable}; Python {wanted} is needed", remedy)
