"""The version of localspec, which the wheel, reports and fingerprints carry."""

__version__ = "0.2.0"
