# SPDX-License-Identifier: MIT
"""What is said where TLS is wanted and not configured, or the other way round.

TLS is Dask's own affair and its own configuration (docs/cluster.md, Who gets in): only the words
are ours, as Dask would try again and again, or raise something that names no way out.
"""

from __future__ import annotations

import os
import ssl
from typing import Optional

from .Errors import InputError

TLS = "tls://"

_NO_CERTIFICATE = (
    "no certificate is configured for %s: tell Dask of yours "
    "(distributed.comm.tls; docs/cluster.md, Who gets in)"
)
_UNUSABLE = (
    "%s cannot be used for TLS (%s): mend Dask's configuration "
    "(distributed.comm.tls; docs/cluster.md, Who gets in)"
)


def refuseWithoutCertificate(address: str, role: str) -> None:
    """Before anything connects.

    Args:
        address: the scheduler's; may be empty.
        role: as Dask names it: "worker" or "client".

    Raises:
        InputError: it is a scheduler with TLS, and Dask knows no certificate for the role.
    """
    if address.startswith(TLS) and contextOf(role) is None:
        raise InputError(_NO_CERTIFICATE % address)


def contextOf(role: str) -> "Optional[ssl.SSLContext]":
    """What Dask's configuration makes of a role's certificate; None where it has none.

    Raises:
        InputError: it names files that cannot be used.
    """
    from distributed.security import Security

    security = Security()
    try:
        context: "Optional[ssl.SSLContext]" = security.get_connection_args(role).get("ssl_context")
        return context
    except OSError as error:
        names = ("tls_ca_file", "tls_%s_cert" % role, "tls_%s_key" % role)
        files = [str(getattr(security, name)) for name in names]
        odd = [file for file in files if not os.access(file, os.R_OK)]
        why = error.strerror or str(error)
        raise InputError(_UNUSABLE % (" and ".join(odd or files), why)) from None
