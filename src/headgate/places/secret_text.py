"""Texts for people without the secrets in them: the passwords of addresses, the values of options."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headgate.core import DeclarationError

HIDDEN = "***"
#: what options and settings are called whose values nobody else may see
SECRET_NAME = re.compile(
    r"secret|password|passwd|passphrase|token|credential|(?<![a-z])sas(?![a-z])"
    # keys that open something, also in names such as apikey and accessKeyId; not those that rows are told apart by,
    # and not the names of classes and files that have to do with keys
    r"|(?:(?:api|access|account|private|shared|signing|encryption|master)[._-]?|(?<![a-z])(?=keys?(?![a-z])))"
    r"(?<!partition[._-])(?<!primary[._-])(?<!foreign[._-])(?<!sort[._-])key(?!s?[._-]?(?:provider|store|word|tab|space))",
    re.IGNORECASE,
)
#: addresses that name a host, perhaps with a port; those of object stores name a bucket
_WITH_PORT = frozenset({"hdfs", "webhdfs", "swebhdfs", "viewfs", "http", "https", "ftp", "sftp"})

#: the scheme, the part with user, host and port, and the rest
_ADDRESS = re.compile(r"([^/?#]*://)([^/?#]*)(.*)", re.DOTALL)


def without(text: str, secrets: Iterable[str], shortest: int = 3) -> str:
    """``text`` with each of ``secrets`` hidden; those shorter than ``shortest`` are no secrets, and in every text."""
    for secret in sorted({each for each in secrets if len(each) >= shortest}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def shown_address(address: str) -> str:
    """An address without its password, also one that is not written as it must be, and without what follows ``?``.

    >>> shown_address("s3://key:pass/word@bucket/city?sig=abc"), shown_address("abfss://box@account/city")
    ('s3://key:***@bucket/city?***', 'abfss://box@account/city')
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    login, at, place = rest.rpartition("@")
    user, has_password, _ = login.partition(":")
    place, query, _ = place.partition("?")
    hidden = f":{HIDDEN}" if has_password else ""
    return f"{scheme}://{user}{hidden}{at}{place}{f'?{HIDDEN}' if query else ''}"


def refuse_secrets(address: str, where: str, instead: str) -> None:
    """DeclarationError if an address has a password or a signature in it: addresses are shown, and kept in files."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return
    login, at, _ = parts[2].rpartition("@")
    # A password with a slash in it ends the part with the host too early; what is there then is no port, or may be one.
    has_port = parts[1].lower().removesuffix("://") in _WITH_PORT and re.fullmatch(r"[^:]*:\d+", parts[2])
    is_torn = not at and "@" in parts[3] and ":" in parts[2] and not has_port
    if ":" in login or is_torn or "?" in parts[3]:
        raise DeclarationError(
            f"{where}: the address {shown_address(address)!r} has a password, a key or a signature in it "
            f"(user:password@ or ?...), and addresses are shown in messages. Leave it out and {instead}"
        )
