"""The cells of one sweep, as jobs. `ddtree sweep` writes the plan and starts this in the sweep's folder."""

import sys
from pathlib import Path

from ddtree.workbook.sweep.grid import PLAN_NAME, read_plan

PLAN = read_plan(Path(PLAN_NAME))


localrules:
    all,


rule all:
    input:
        expand("cells/{cell}/result.json", cell=[cell.id for cell in PLAN.cells]),


# The notebook is no input: a finished cell stays finished. Logs outlive a failed job, outputs do not.
rule cell:
    output:
        "cells/{cell}/result.json",
    log:
        notebook="cells/{cell}/executed.ipynb",
        text="cells/{cell}/cell.log",
    wildcard_constraints:
        cell="[^/]+",
    params:
        root=workflow.basedir,
        python=sys.executable,
        plan=str(Path(PLAN_NAME).resolve()),
    resources:
        gpu=lambda wildcards: PLAN.cell(wildcards.cell).gpus,
    shell:
        "(cd {params.root:q} && exec {params.python:q} -m ddtree.workbook.sweep.cell"
        " {params.plan:q} {wildcards.cell:q} {threads}) > {log.text:q} 2>&1"
