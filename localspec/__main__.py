"""The program's first lines: `localspec` and `python -m localspec`. While the others are imported, Ctrl+C is silent."""

from __future__ import annotations

import os
import signal

EXIT_STOPPED = 130  # 128 + SIGINT, as shells count


def leave(*_: object) -> None:
    os._exit(EXIT_STOPPED)


def main() -> None:
    signal.signal(signal.SIGINT, leave)
    from localspec.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
