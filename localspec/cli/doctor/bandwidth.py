"""Measures memory bandwidth, the ceiling of plain decoding, on the processor and on every GPU."""

from __future__ import annotations

from msgspec.structs import replace

from localspec.cli.doctor.records import DoctorReport

SHARE = 4  # at most a quarter of the free memory is used


def measured(report: DoctorReport) -> DoctorReport:
    if report.torch.fault:
        return report
    threads = min(report.processor.physical_cores, report.processor.usable_threads)
    processor = replace(report.processor, read_gbs=read_processor(report.memory.free_bytes, threads))
    devices = (replace(device, read_gbs=read(device.name, device.free_bytes or 0)) for device in report.torch.devices)
    return replace(report, processor=processor, torch=replace(report.torch, devices=tuple(devices)))


def read_processor(free_bytes: int, threads: int) -> float | None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return read("cpu", free_bytes)
    finally:
        torch.set_num_threads(before)


def read(device: str, free_bytes: int) -> float | None:
    """The bandwidth in GB/s; None where there is not enough memory to measure it."""
    from localspec.engine.bandwidth import MOST_BYTES, read_bandwidth

    try:
        return read_bandwidth(min(MOST_BYTES, free_bytes // SHARE), device) if free_bytes else None
    except (RuntimeError, AssertionError):
        return None
