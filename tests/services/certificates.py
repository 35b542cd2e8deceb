"""Certificates for servers on loopback, made with openssl: an authority, and a key that it has signed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


def why_not() -> str:
    """Why no certificates can be made here; empty if they can."""
    return "" if shutil.which("openssl") else "openssl is not installed"


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority that clients trust, and the certificate and key of a server at 127.0.0.1."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def key_and_certificate(self) -> Path:
        """Both in one file, as Java reads them."""
        file = self.key.with_name("server.pem")
        file.write_text(self.key.read_text() + self.certificate.read_text())
        return file


def make_certificates(folder: Path) -> Certificates:
    """Make an authority that nobody else knows, and a server's key that it has signed."""
    folder.mkdir(parents=True, exist_ok=True)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = folder.name
    _openssl(folder, "req", "-x509", *new_key, "-subj", f"/CN=authority {name}", "-keyout", "ca.key", "-out", "ca.crt")
    _openssl(folder, "req", *new_key, "-subj", "/CN=127.0.0.1", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    _openssl(folder, "x509", "-req", "-in", "server.csr", *signed, "-out", "server.crt")
    return Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
