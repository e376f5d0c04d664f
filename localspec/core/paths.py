"""Where files live: what ships with the package, and what is the user's. Nothing else knows a folder's name."""

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
    """~ is the user's home, and stays what it is where there is none."""
    return Path(os.path.expanduser(typed))


PURPOSES = ("config", "cache", "state", "data")
PACKED, COMPILED, HISTORY = "packed", "engine", "history.db"


def folder(purpose: str) -> Path:
    """Where it is, or would be: nothing is made."""
    if chosen := os.environ.get(variable(purpose)):
        return Path(chosen)
    import platformdirs  # a machine that is only measured need not have it

    return Path(getattr(platformdirs, f"user_{purpose}_dir")("localspec", appauthor=False))


def variable(purpose: str) -> str:
    """Of the environment, that moves it."""
    return f"LOCALSPEC_{purpose.upper()}_DIR"


def state_dir() -> Path:
    """Logs, calibration, verdicts and what was copied; safe to delete. LOCALSPEC_STATE_DIR overrides it."""
    return made(folder("state"))


def cache_dir() -> Path:
    """What can be made again: compiled code, packed and quantised weights. LOCALSPEC_CACHE_DIR overrides it."""
    return made(folder("cache"), variable="LOCALSPEC_CACHE_DIR")


def data_dir() -> Path:
    """What cannot be made again: the user's chats. LOCALSPEC_DATA_DIR overrides it."""
    return made(folder("data"), variable="LOCALSPEC_DATA_DIR")


def config_dir() -> Path:
    """What the user wrote: settings and themes. LOCALSPEC_CONFIG_DIR overrides it. Reading does not make it."""
    return folder("config")


def pictures_dir() -> Path:
    """For what the user makes of the screen: the folder of downloads, or the present one where there is none."""
    from platformdirs import user_downloads_path

    downloads = user_downloads_path()
    return downloads if downloads.is_dir() else Path()


def packed_dir() -> Path:
    """Models packed for the CPU engine, and those that bitsandbytes has quantised."""
    return made(cache_dir() / PACKED, variable="LOCALSPEC_CACHE_DIR")


def compiled_dir() -> Path:
    """The CPU engine's machine code."""
    return made(cache_dir() / COMPILED, variable="LOCALSPEC_CACHE_DIR")


def engine_log() -> Path:
    """Where the engine's child process writes what it would have printed."""
    return made(state_dir() / "log") / "engine.log"


def copied_file() -> Path:
    """What was copied last, where no clipboard is known to have taken it."""
    return state_dir() / "copied.txt"


def calibration_file() -> Path:
    return state_dir() / "calibration.json"


def history_file() -> Path:
    return data_dir() / HISTORY


def config_file() -> Path:
    return config_dir() / "config.toml"


def models_file() -> Path:
    """The user's own models, over those that ship."""
    return config_dir() / "models.toml"


def hints_file() -> Path:
    """How often something was explained in the chat."""
    return state_dir() / "hints.json"


def themes_dir() -> Path:
    return config_dir() / "themes"


def admissions_file() -> Path:
    return state_dir() / "admissions.json"


def made(place: Path, *, variable: str = "LOCALSPEC_STATE_DIR") -> Path:
    """The folder, made if need be; nobody but the user may look into it."""
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        raise UsageError(
            f"The folder {place} cannot be made ({fault.strerror}).", hint=f"Set {variable} to another."
        ) from fault
    return place
