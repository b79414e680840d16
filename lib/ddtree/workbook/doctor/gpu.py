"""The GPU as torch sees it, and the two ways in which a GPU that is there goes unseen: a CPU build, or a driver."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtree.workbook.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Gpu:
    """`names` are the devices torch can use; `cuda_build` is None for a CPU build of torch."""

    driver_loaded: bool
    cuda_build: str | None
    names: tuple[str, ...]
    memory_gib: tuple[float, ...]


def this_gpu(torch: Any) -> Gpu:
    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    properties = [torch.cuda.get_device_properties(device) for device in devices]
    return Gpu(
        driver_loaded=Path("/proc/driver/nvidia/version").is_file(),
        cuda_build=torch.version.cuda,
        names=tuple(device.name for device in properties),
        memory_gib=tuple(device.total_memory / 2**30 for device in properties),
    )


def examine_gpu(gpu: Gpu) -> Finding:
    if gpu.names:
        devices = ", ".join(f"{name} ({gib:.0f} GiB)" for name, gib in zip(gpu.names, gpu.memory_gib, strict=True))
        return Finding("gpu", "ok", f"{devices}, torch built for CUDA {gpu.cuda_build}")
    if not gpu.driver_loaded:
        return Finding("gpu", "warning", "none: models run on the CPU; only serving and the stock kernel need one")
    if gpu.cuda_build is None:
        remedy = "install torch from PyPI, whose Linux build has CUDA"
        return Finding("gpu", "warning", "an NVIDIA driver is loaded, but this torch is a CPU build", remedy)
    detail = f"an NVIDIA driver is loaded, but torch, built for CUDA {gpu.cuda_build}, finds no device"
    return Finding("gpu", "warning", detail, "see whether nvidia-smi shows one, and CUDA_VISIBLE_DEVICES hides none")
