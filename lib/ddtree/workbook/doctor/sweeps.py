"""Whether sweeps can run, here and through SLURM, whose plugin only the workbook's environment can hold."""

from collections.abc import Mapping

from ddtree.workbook.doctor.finding import Finding
from ddtree.workbook.doctor.packages import examine_package, serves
from ddtree.workbook.doctor.pins import Pins


def examine_sweeps(pins: Pins, installed: Mapping[str, str], pip: str) -> Finding:
    if "snakemake" not in installed:
        return Finding("sweeps", "missing", "Snakemake, which runs them, is not installed", f"{pip} install snakemake")
    here = f"snakemake {installed['snakemake']}"
    (plugin,) = pins.extras["slurm"]
    deviating = examine_package(plugin, installed, pip)
    if deviating is None:
        return Finding("sweeps", "ok", f"{here}, here and through SLURM")
    if serves(installed):
        return Finding("sweeps", "ok", f"{here}, here; through SLURM from the workbook's environment")
    return Finding("sweeps", "warning", f"{here}, here; SLURM needs {plugin}", deviating.remedy)
