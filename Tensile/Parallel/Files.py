# SPDX-License-Identifier: MIT
"""Files that are written anew as a whole (no reader ever sees half of one), and programs."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Union

AnyPath = Union[str, Path]


def isProgram(path: AnyPath) -> bool:
    """Whether a path is that of a file which this user may run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def replaceFile(path: AnyPath, content: bytes, executable: bool = False) -> None:
    """Write a file beside its place and move it there. Its mode follows the umask.

    Raises:
        OSError: it could not be written; what was there is there still.
    """
    temporary = "%s.%d" % (path, os.getpid())
    mode = 0o777 if executable else 0o666
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = str(path)  # of which a person knows
        raise


def replaceJson(path: AnyPath, value: Any) -> None:
    """The same with a value as JSON."""
    replaceFile(path, json.dumps(value, indent=1).encode("utf-8") + b"\n")
