"""The paths of packaged files and of the user's files. No other module knows a folder's name."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.core.errors import UsageError

HERE = Path(__file__).resolve().parents[1]


def packaged(name: str) -> Path:
    """A file that ships with localspec: in the wheel under localspec/data/, in a clone at its top."""
    inside = HERE / "data" / name
    return inside if inside.exists() else HERE.parent / name


def expanded(typed: str) -> Path:
    """The path with ~ expanded to the user's home, if there is one."""
    return Path(os.path.expanduser(typed))


PURPOSES = ("config", "cache", "state", "data")
PACKED, COMPILED, HEADERS, HISTORY = "packed", "engine", "headers", "history.db"


def folder(purpose: str) -> Path:
    """The folder for this purpose, which may not exist yet."""
    if chosen := os.environ.get(variable(purpose)):
        return Path(chosen)
    import platformdirs  # a machine that is only measured need not have it

    return Path(getattr(platformdirs, f"user_{purpose}_dir")("localspec", appauthor=False))


def variable(purpose: str) -> str:
    """The environment variable that moves this folder."""
    return f"LOCALSPEC_{purpose.upper()}_DIR"


def state_dir() -> Path:
    """The folder of logs, calibration, self-checks, copied text; safe to delete. LOCALSPEC_STATE_DIR overrides it."""
    return made(folder("state"))


def cache_dir() -> Path:
    """The folder of what can be made again: compiled code and the weight cache. LOCALSPEC_CACHE_DIR overrides it."""
    return made(folder("cache"), variable="LOCALSPEC_CACHE_DIR")


def data_dir() -> Path:
    """The folder of what cannot be made again: the user's chats. LOCALSPEC_DATA_DIR overrides it."""
    return made(folder("data"), variable="LOCALSPEC_DATA_DIR")


def config_dir() -> Path:
    """The folder of settings and themes. LOCALSPEC_CONFIG_DIR overrides it. Reading does not create it."""
    return folder("config")


def pictures_dir() -> Path:
    """The folder for screenshots and exports: downloads, or the current folder where there is none."""
    from platformdirs import user_downloads_path

    downloads = user_downloads_path()
    return downloads if downloads.is_dir() else Path()


def packed_dir() -> Path:
    """The weight cache: models packed for the CPU engine, or quantised by bitsandbytes."""
    return made(cache_dir() / PACKED, variable="LOCALSPEC_CACHE_DIR")


def compiled_dir() -> Path:
    """The folder of the CPU engine's machine code."""
    return made(cache_dir() / COMPILED, variable="LOCALSPEC_CACHE_DIR")


def engine_log() -> Path:
    """The log that takes the output of the engine's process."""
    return made(state_dir() / "log") / "engine.log"


def hub_log() -> Path:
    """The log that takes the output of the hub's process."""
    return made(state_dir() / "log") / "hub.log"


def pulls_dir() -> Path:
    """The folder of what is known about unfinished downloads."""
    return made(state_dir() / "pulls")


def pulled_dir() -> Path:
    """The folder of what came with complete downloads."""
    return made(state_dir() / "pulled")


def copied_file() -> Path:
    """The file of what was copied last where there is no clipboard."""
    return state_dir() / "copied.txt"


def calibration_file() -> Path:
    return state_dir() / "calibration.json"


def history_file() -> Path:
    return data_dir() / HISTORY


def config_file() -> Path:
    return config_dir() / "config.toml"


def models_file() -> Path:
    """The user's models.toml, which overrides the packaged one."""
    return config_dir() / "models.toml"


def hints_file() -> Path:
    """The file that counts how often each hint was shown."""
    return state_dir() / "hints.json"


def chosen_formats_file() -> Path:
    """The file of the weight formats that the user chose in the chat, by the model's name."""
    return state_dir() / "chosen-formats.json"


def downloads_file() -> Path:
    """The file of the downloads that wait or are not complete."""
    return state_dir() / "downloads.json"


def themes_dir() -> Path:
    return config_dir() / "themes"


def self_checks_file() -> Path:
    return state_dir() / "self-checks.json"


def loaded_dir() -> Path:
    """The folder with a lock for each model that is loaded."""
    return made(state_dir() / "loaded")


def serving_dir() -> Path:
    """The folder with a file for each server that runs."""
    return made(state_dir() / "serving")


def pairs_file() -> Path:
    """The file of verdicts about pairs of tokenizers."""
    return state_dir() / "pairs.json"


def pulled_pairs_file() -> Path:
    """The file of the drafters that models were pulled with."""
    return state_dir() / "pulled-pairs.json"


def pulled_licences_file() -> Path:
    """The file of the licences that the hub named when models were pulled."""
    return state_dir() / "pulled-licences.json"


def licences_file() -> Path:
    """The file of the licences that the user has acknowledged, by repository."""
    return state_dir() / "licences.json"


def headers_dir() -> Path:
    """The folder of headers that were read of repositories before any download."""
    return made(cache_dir() / HEADERS, variable="LOCALSPEC_CACHE_DIR")


def made(folder: Path, *, variable: str = "LOCALSPEC_STATE_DIR") -> Path:
    """The folder, created if need be, readable by its user alone; UsageError where it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        raise UsageError(
            f"The folder {folder} cannot be created ({fault.strerror}).", hint=f"Set {variable} to another folder."
        ) from fault
    return folder
