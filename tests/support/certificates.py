"""Certificates of a test's own authority, as PEM files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; its own is `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / f"{name}.pem"
        own = self._builder(_named(name), self._key.public_key(), days=2)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.ca.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def sign(self, name: str, *, address: str = "127.0.0.1", days: int = 2, passphrase: str = "") -> tuple[Path, Path]:
        """A certificate and its key, for an address; with days below 0 it has run out."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key.public_key(), days)
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        signed = builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(signed.public_bytes(Encoding.PEM))
        secret: KeySerializationEncryption = (
            BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        )
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
        return paths

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_named(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=days))
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
