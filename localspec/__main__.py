"""`python -m localspec` is `localspec`."""

from localspec.cli import main

if __name__ == "__main__":
    main()
