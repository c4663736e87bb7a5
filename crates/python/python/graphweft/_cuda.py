"""CUDA's libraries from Python packages: those of ``graphweft[cuda13]``, or that PyTorch came with.

The engine opens libraries by name, and finds those that are loaded already. So they are loaded here first, by path,
where there is a driver; where there is none, nothing is looked for.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

# Newest first: what is loaded first is what the engine finds.
_WANTED = (("libnvrtc.so.13", "libnvrtc.so.12"), ("libcublasLt.so.13", "libcublasLt.so.12"), ("libnccl.so.2",))


def _loaded(name: str) -> bool:
    """By name alone: one that is in the process already, or that the loader finds."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _packaged() -> dict[str, Path]:
    """Libraries in Python packages of NVIDIA's, by name."""
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None or spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return {path.name: path for folder in folders for path in sorted(Path(folder).glob("*/lib/lib*.so.*"))}


@functools.cache
def load() -> tuple[str, ...]:
    """Loads what a GPU needs, once; which names are there."""
    if not _loaded("libcuda.so.1"):
        return ()
    packaged = _packaged()
    found = []
    for names in _WANTED:
        for name in names:
            if _loaded(name) or (name in packaged and _loaded(str(packaged[name]))):
                found.append(name)
                break
    return tuple(found)
