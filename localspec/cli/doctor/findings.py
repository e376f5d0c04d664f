"""What is wrong with a machine, each in one sentence with the next command. Looks at a report and at nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.cli.doctor.packages import is_in_range
from localspec.cli.doctor.records import Bitsandbytes, Device, Finding, Folder, Level, Package, Report, Torch
from localspec.core.nvidia import Driver, why_unused

VITAL = {"torch", "transformers", "safetensors", "tokenizers", "jinja2", "msgspec", "click", "platformdirs", "psutil"}
SPARE_BYTES = 256 << 20  # of a disk: with less, nothing is kept
SPARE_SHARE = 0.1  # of a GPU's memory: with less, another program has it
KEEPS = {"cache": "packed weights and compiled code", "state": "logs and measurements", "data": "chats"}


def findings(report: Report) -> Iterator[Finding]:
    for package in report.packages:
        yield from of_package(package)
    yield from of_torch(report.torch, report.packages)
    yield from of_driver(report.driver, report.torch)
    for device in report.torch.devices:
        yield from of_device(device)
    if report.bitsandbytes and not report.torch.fault:
        yield from of_bitsandbytes(report.bitsandbytes)
    yield from of_processor(report)
    if report.settings.fault:
        yield Finding("error", report.settings.fault)
    for folder in report.folders:
        yield from of_folder(folder)
    if report.login.hides_another:
        message = "HF_TOKEN is in use for the Hugging Face hub, and not the saved login, which is another."
        yield Finding("warning", message, "To use the login: unset HF_TOKEN")


def of_package(package: Package) -> Iterator[Finding]:
    level: Level = "error" if package.name in VITAL else "warning"
    install = f"pip install '{package.name}{package.wanted}'"
    if package.is_needed and package.version is None:
        yield Finding(level, f"{package.name} is not installed.", f"Install it: {install}")
    elif package.version is not None and not is_in_range(package):
        message = f"{package.name} {package.version} is none of the versions localspec is made for ({package.wanted})."
        yield Finding("warning", message, f"Change it: {install}")


def of_torch(torch: Torch, packages: tuple[Package, ...]) -> Iterator[Finding]:
    is_there = any(package.name == "torch" and package.version for package in packages)
    if torch.fault and is_there:
        message = f"torch is installed and cannot be imported ({torch.fault})."
        yield Finding("error", message, "Install it again: pip install --force-reinstall torch")


def of_driver(driver: Driver | None, torch: Torch) -> Iterator[Finding]:
    """The driver knows a GPU, and torch uses none."""
    if not torch.devices and not torch.fault and (reason := why_unused(driver, torch.cuda)):
        yield Finding("warning", reason.message, reason.hint)


def of_device(device: Device) -> Iterator[Finding]:
    if device.fault:
        yield Finding("warning", f"{device.name} cannot be used ({device.fault}).", "See who has it: nvidia-smi")
    elif device.total_bytes and device.free_bytes is not None and device.free_bytes < SPARE_SHARE * device.total_bytes:
        sizes = f"{device.free_bytes / 1e9:.1f} of {device.total_bytes / 1e9:.1f} GB"
        hint = "See who has it: nvidia-smi" if device.name.startswith("cuda") else "Close other programs."
        yield Finding("warning", f"{device.name} has {sizes} free: other programs have the rest.", hint)


def of_bitsandbytes(found: Bitsandbytes) -> Iterator[Finding]:
    if found.fault:
        backend = f" for {found.backend}" if found.backend else ""
        message = f"bitsandbytes cannot use its compiled code{backend} ({found.fault})."
        yield Finding("warning", message, "Install it again: pip install --force-reinstall --no-deps bitsandbytes")


def of_processor(report: Report) -> Iterator[Finding]:
    processor = report.processor
    if processor.fault:
        yield Finding("error", processor.fault)
    if processor.usable_threads < processor.physical_cores:
        message = f"Only {processor.usable_threads} of {processor.physical_cores} cores may be used here."
        yield Finding("warning", message, f"Say so: localspec chat --threads {processor.usable_threads}")


def of_folder(folder: Folder) -> Iterator[Finding]:
    what = "written to" if folder.exists else "made"
    if folder.fault:
        loss = f", so no {KEEPS[folder.purpose]} are kept" if folder.purpose in KEEPS else ""
        message = f"The {folder.purpose} folder {folder.path} cannot be {what} ({folder.fault}){loss}."
        yield Finding("warning", message, f"Set {folder.variable} to another.")
    elif folder.free_bytes is not None and folder.free_bytes < SPARE_BYTES:
        message = f"The disk of the {folder.purpose} folder has {folder.free_bytes / 1e6:.0f} MB free."
        yield Finding("warning", message, f"Make room, or set {folder.variable} to another folder.")
