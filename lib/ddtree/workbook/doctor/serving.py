"""Whether this environment can serve with SGLang, which needs packages that the workbook's environment cannot hold."""

from collections.abc import Mapping

from ddtree.workbook.doctor.finding import Finding
from ddtree.workbook.doctor.packages import examine_package, serves
from ddtree.workbook.doctor.pins import Pins


def examine_serving(pins: Pins, installed: Mapping[str, str], pip: str) -> Finding:
    if not serves(installed):
        detail = "SGLang is not in this environment; serving has one of its own"
        return Finding("serving", "warning", detail, "conda env create -f environment-gpu.yml, on a machine with a GPU")
    lines = pins.extras["gpu"]
    deviating = [found for line in lines if (found := examine_package(line, installed, pip))]
    if not deviating:
        return Finding("serving", "ok", ", ".join(f"{line.name} {installed[line.name]}" for line in lines))
    told = "; ".join(f"{found.subject}: {found.detail}" for found in deviating)
    return Finding("serving", "warning", told, deviating[0].remedy)
