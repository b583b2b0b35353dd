"""Handles TLS to a server: what the settings ask for, what a connection has, and what went wrong."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from bridge.errors import TargetError, UsageError, fix_of_reading

if TYPE_CHECKING:  # the settings need this module, and wrong ones not the driver
    from pymysql.err import MySQLError

TlsMode = Literal["off", "preferred", "required", "verify-ca", "verify-identity"]
VERIFIED: Final = frozenset({"verify-ca", "verify-identity"})
_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The connection ended during the handshake: like any other lost connection, it may come back."""
_NO_TLS: Final = 2026  # CR_SSL_CONNECTION_ERROR
_INSECURE: Final = frozenset({3159, 4031, 4086, 4155})
"""The server accepts no connections without TLS (MySQL, MariaDB)."""


@dataclass(frozen=True)
class Tls:
    """The TLS settings of a server.  section: the section of the settings, target or upstream.

    mode: off; preferred: TLS where the server has it, and no certificate is checked; required: TLS, unchecked;
        verify-ca: the certificate is signed by `ca`, or without it by one of the machine's own authorities;
        verify-identity: it also names the host.
    cert, key: the client's, where the server asks for one; the key may be in the same file.
    """

    mode: TlsMode = "preferred"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    section: str = "target"

    def driver_settings(self) -> dict[str, Any]:
        """Gives the settings as PyMySQL takes them.  Raises UsageError for settings that contradict each other, and for
        files that cannot be read."""
        self._refuse_contradictions()
        return {"ssl_disabled": True} if self.mode == "off" else {"ssl": self._context()}

    def _refuse_contradictions(self) -> None:
        if self.ca and self.mode not in VERIFIED:
            self._wrong(f'tls_ca checks nothing with {self.section}.tls = "{self.mode}"', 'set it to "verify-identity"')
        if self.key and not self.cert:
            self._wrong("tls_key is of no use without tls_cert", "name the client's certificate")
        if self.cert and self.mode == "off":
            self._wrong(f'tls_cert is of no use with {self.section}.tls = "off"', 'set it to "verify-identity"')

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.mode == "verify-identity"
        context.verify_mode = ssl.CERT_REQUIRED if self.mode in VERIFIED else ssl.CERT_NONE
        # The certificates that MySQL makes for itself lack fields that the strict check needs (Python 3.13).
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.ca:
            self._load("tls_ca", self.ca, lambda: context.load_verify_locations(cafile=self.ca))
        elif self.mode in VERIFIED:
            context.load_default_certs()
        if cert := self.cert:
            self._load("tls_cert", cert, lambda: context.load_cert_chain(cert, self.key, self._passphrase))
        return context

    def _load(self, setting: str, path: str, load: Any) -> None:
        try:
            for part in filter(None, (path, self.key if setting == "tls_cert" else None)):
                Path(part).open("rb").close()  # the library does not say which of the two files it cannot read
            load()
        except ssl.SSLError as error:
            what = "no certificate" if setting == "tls_ca" else "no certificate with its key"
            self._wrong(f"{setting} {path} holds {what}: {error}", "give a PEM file")
        except OSError as error:
            file = error.filename or path
            fix = fix_of_reading(error, file, "check its name and rights")
            self._wrong(f"{setting}: {file} cannot be read: {error.strerror}", fix)

    def _passphrase(self) -> NoReturn:
        self._wrong("tls_key is encrypted", "give a key without a passphrase, which only its owner can read")

    def _wrong(self, what: str, fix: str) -> NoReturn:
        raise UsageError(f"{self.section}.{what}", fix=fix)

    def refusal(self, error: MySQLError, role: str, where: str) -> TargetError | None:
        """Gives an error that says what went wrong with TLS, for which no retry helps; None when something else went
        wrong."""
        code = error.args[0] if error.args else None
        if code == _NO_TLS:
            return TargetError(
                f'the {role} offers no TLS, and {self.section}.tls is "{self.mode}"',
                where=where,
                fix=f'switch TLS on there; or, where the network is trusted, set {self.section}.tls = "preferred"',
            )
        if code in _INSECURE:
            return TargetError(
                f'the {role} takes no connection without TLS, and {self.section}.tls is "{self.mode}": {error.args[1]}',
                where=where,
                fix=f'set {self.section}.tls = "verify-identity", or at least "required"',
            )
        cause = _ssl_error(error)
        if cause is None or isinstance(cause, _CUT):
            return None
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TargetError(
                f"the certificate of the {role} is not accepted: {cause.verify_message}",
                where=where,
                fix=self._fix_of(cause),
            )
        return TargetError(
            f"TLS with the {role} fails: {cause}",
            where=where,
            fix=f"check which versions of TLS the server has, and whether it accepts {self.section}.tls_cert",
        )

    def _fix_of(self, cause: ssl.SSLCertVerificationError) -> str:
        if "expired" in cause.verify_message or "not yet valid" in cause.verify_message:
            return "renew the server's certificate, or set the clock"
        if "match" in cause.verify_message:
            return (
                "name the server as its certificate does, or, where any certificate of the authority will do, set"
                f' {self.section}.tls = "verify-ca"'
            )
        return f"set {self.section}.tls_ca to the certificate of the authority that signed it"


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """Finds the TLS error that the driver has wrapped, None without one."""
    while error is not None:
        original = getattr(error, "original_exception", error)
        if isinstance(original, ssl.SSLError):
            return original
        error = error.__cause__ or error.__context__
    return None


def is_encrypted(connected: socket.socket) -> bool:
    """Tells whether a connection has TLS."""
    return isinstance(connected, ssl.SSLSocket)


def in_words(connected: socket.socket) -> str:
    """Describes how a connection is protected: `TLSv1.3, TLS_AES_256_GCM_SHA384, certificate not checked`."""
    if not isinstance(connected, ssl.SSLSocket):
        return "not encrypted" + (", a socket of this machine" if connected.family == socket.AF_UNIX else "")
    context, cipher = connected.context, connected.cipher()
    checked = "certificate not checked"
    if context.verify_mode == ssl.CERT_REQUIRED:
        checked = "certificate and host name checked" if context.check_hostname else "certificate checked"
    return f"{connected.version()}, {cipher[0] if cipher else 'no cipher'}, {checked}"
