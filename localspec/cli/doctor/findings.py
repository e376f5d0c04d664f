"""The problems of a machine, each in one sentence with the next command. Reads the report and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.cli.doctor.packages import is_in_range
from localspec.cli.doctor.records import (
    Bitsandbytes,
    Device,
    DoctorReport,
    Finding,
    FolderStatus,
    Level,
    Package,
    Torch,
)
from localspec.core.disk import CACHE_SPARE_BYTES
from localspec.core.nvidia import Driver, why_unused

VITAL = {"torch", "transformers", "safetensors", "tokenizers", "jinja2", "msgspec", "click", "platformdirs", "psutil"}
SPARE_SHARE = 0.1  # of a GPU's memory: with less, another program uses it
KEEPS = {"cache": "packed weights and compiled code", "state": "logs and measurements", "data": "chats"}
KEEPS |= {"models": "downloads"}


def findings(report: DoctorReport) -> Iterator[Finding]:
    for package in report.packages:
        yield from package_findings(package)
    yield from torch_findings(report.torch, report.packages)
    yield from driver_findings(report.driver, report.torch)
    for device in report.torch.devices:
        yield from device_findings(device)
    if report.bitsandbytes and not report.torch.fault:
        yield from bitsandbytes_findings(report.bitsandbytes)
    yield from processor_findings(report)
    if report.settings.fault:
        yield Finding("error", report.settings.fault)
    for folder in report.folders:
        yield from folder_findings(folder)
    if report.login.hides_another:
        message = "HF_TOKEN overrides the saved Hugging Face login, which has another token."
        yield Finding("warning", message, "To use the login: unset HF_TOKEN")


def package_findings(package: Package) -> Iterator[Finding]:
    level: Level = "error" if package.name in VITAL else "warning"
    install = f"pip install '{package.name}{package.wanted}'"
    if package.is_needed and package.version is None:
        yield Finding(level, f"{package.name} is not installed.", f"Install it: {install}")
    elif package.version is not None and not is_in_range(package):
        message = f"{package.name} {package.version} is not a supported version ({package.wanted})."
        yield Finding("warning", message, f"Install one: {install}")


def torch_findings(torch: Torch, packages: tuple[Package, ...]) -> Iterator[Finding]:
    is_there = any(package.name == "torch" and package.version for package in packages)
    if torch.fault and is_there:
        message = f"torch is installed but cannot be imported ({torch.fault})."
        yield Finding("error", message, "Reinstall it: pip install --force-reinstall torch")


def driver_findings(driver: Driver | None, torch: Torch) -> Iterator[Finding]:
    """A warning where the driver has a GPU but torch cannot use it."""
    if not torch.devices and not torch.fault and (reason := why_unused(driver, torch.cuda)):
        yield Finding("warning", reason.message, reason.hint)


def device_findings(device: Device) -> Iterator[Finding]:
    if device.fault:
        yield Finding(
            "warning", f"{device.name} cannot be used ({device.fault}).", "See which program uses it: nvidia-smi"
        )
    elif device.total_bytes and device.free_bytes is not None and device.free_bytes < SPARE_SHARE * device.total_bytes:
        sizes = f"{device.free_bytes / 1e9:.1f} of {device.total_bytes / 1e9:.1f} GB"
        hint = "See which program uses it: nvidia-smi" if device.name.startswith("cuda") else "Close other programs."
        yield Finding("warning", f"{device.name} has only {sizes} free: other programs use the rest.", hint)


def bitsandbytes_findings(found: Bitsandbytes) -> Iterator[Finding]:
    if found.fault:
        backend = f" for {found.backend}" if found.backend else ""
        message = f"bitsandbytes cannot load its compiled library{backend} ({found.fault})."
        yield Finding("warning", message, "Reinstall it: pip install --force-reinstall --no-deps bitsandbytes")


def processor_findings(report: DoctorReport) -> Iterator[Finding]:
    processor = report.processor
    if processor.fault:
        yield Finding("error", processor.fault)
    if processor.usable_threads < processor.physical_cores:
        message = f"Only {processor.usable_threads} of {processor.physical_cores} cores are available to this process."
        yield Finding("warning", message, f"Use as many threads: localspec chat --threads {processor.usable_threads}")


def folder_findings(folder: FolderStatus) -> Iterator[Finding]:
    verb = "written to" if folder.exists else "created"
    if folder.fault:
        loss = f", so {KEEPS[folder.purpose]} are not saved" if folder.purpose in KEEPS else ""
        message = f"The {folder.purpose} folder {folder.path} cannot be {verb} ({folder.fault}){loss}."
        yield Finding("warning", message, f"Set {folder.variable} to another folder.")
    elif folder.free_bytes is not None and folder.free_bytes < CACHE_SPARE_BYTES:
        message = f"The disk of the {folder.purpose} folder has only {folder.free_bytes / 1e6:.0f} MB free."
        yield Finding("warning", message, f"Free some space, or set {folder.variable} to another folder.")
