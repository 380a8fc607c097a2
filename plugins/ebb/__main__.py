"""What this installation can do: python -m ebb."""

import importlib.metadata

import ebb
from ebb import _library

TRIED = {"torch": "2.9.1 and 2.15.0", "jax": "0.10.2"}


def main() -> None:
    print(f"version   {ebb.version()}")
    print(f"library   {_library.FILE}")
    print(f"built     {ebb.build_info()}")
    for device in ("host", "cuda"):
        try:
            _library.Runtime(device=device, log_level=1).close()
            print(f"{device:<9} works")
        except _library.EbbError as why:
            print(f"{device:<9} {why}")
    for name, tried in TRIED.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        print(f"{name:<9} {found} (tried with {tried})")


if __name__ == "__main__":
    main()
