"""TLS to a server: what the settings ask for is what there is, or it is said why not."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymysql.err import MySQLError, OperationalError
from structlog.testing import capture_logs

from bridge.errors import TargetError, UsageError
from bridge.local import MariaDB, MySQL
from bridge.local.errors import LocalError
from bridge.local.sql_server import SqlServer
from bridge.mysql.connection.target import Target
from bridge.mysql.connection.tls import Tls, TlsMode
from bridge.mysql.server_errors import LOST, LostConnectionError
from tests.support.certificates import Authority
from tests.support.command import Ended, bridge
from tests.support.pipelines import admin
from tests.support.proxy import Proxy, port_of

MODES: tuple[TlsMode, ...] = ("off", "preferred", "required", "verify-ca", "verify-identity")


class Secured:
    """A server with TLS, the authority that signed its certificate, and another one."""

    def __init__(self, folder: Path, server: SqlServer, reload: str) -> None:
        self.authority, self.stranger = Authority(folder), Authority(folder, "stranger")
        self.server, self._reload = server, reload
        self.cert, self.key = self.authority.sign("server")
        self.client_cert, self.client_key = (str(path) for path in self.authority.sign("client"))

    @property
    def url(self) -> str:
        return self.server.url

    def tls(self, mode: TlsMode, **files: object) -> Tls:
        return Tls(mode, **{name: str(path) for name, path in files.items()})

    def answers(self, tls: Tls, url: str = "") -> str:
        """How a session is protected."""
        session = Target(url or self.url, tls=tls).connect(autocommit=True)
        encryption = session.encryption
        assert bool(session.rows("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]) == session.is_encrypted
        session.close()
        return encryption

    def show(self, cert: Path, key: Path) -> None:
        """Has the server show another certificate from now on."""
        old = self.cert.read_bytes(), self.key.read_bytes()
        self.key.write_bytes(key.read_bytes())
        self.cert.write_bytes(cert.read_bytes())
        with admin(self.url) as session:
            session.execute(self._reload)
        self.old = old

    def show_own_again(self) -> None:
        self.cert.write_bytes(self.old[0])
        self.key.write_bytes(self.old[1])
        with admin(self.url) as session:
            session.execute(self._reload)


def options(folder: Path) -> list[str]:
    return [
        f"--ssl-{name}={folder / file}"
        for name, file in (("ca", "ca.pem"), ("cert", "server.pem"), ("key", "server.key"))
    ]


@pytest.fixture(scope="module", params=["MariaDB", "MySQL"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certificates")
    if request.param == "MariaDB":
        server: SqlServer = MariaDB(options=["--ssl", *options(folder)])
        found = Secured(folder, server, "FLUSH SSL")
    else:
        server = MySQL(options=["--tls-version=TLSv1.2,TLSv1.3", *options(folder)])
        found = Secured(folder, server, "ALTER INSTANCE RELOAD TLS")
    try:
        server.start()
    except LocalError as error:
        pytest.skip(str(error))
    try:
        yield found
    finally:
        server.stop(0)


def refused(target: Target) -> TargetError:
    began = time.monotonic()
    with pytest.raises(TargetError) as raised:
        target.connect()
    assert time.monotonic() - began < 10
    return raised.value


def test_every_mode_has_what_it_says(secured: Secured) -> None:
    """Encrypted in all but off; the certificate, and the host, are checked where that is asked for."""
    ca = secured.authority.ca
    assert secured.answers(Tls("off")) == "not encrypted"
    for mode in ("preferred", "required"):
        assert secured.answers(Tls(mode)).endswith("certificate not checked")
    assert secured.answers(secured.tls("verify-ca", ca=ca)).endswith(", certificate checked")
    found = secured.answers(secured.tls("verify-identity", ca=ca))
    assert found.startswith("TLSv1.3, TLS_AES")
    assert found.endswith("certificate and host name checked")


def test_the_machines_own_authorities(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tls_ca they are asked."""
    assert "tls_ca" in refused(Target(secured.url, tls=Tls("verify-ca"))).fix
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.authority.ca))
    assert secured.answers(Tls("verify-identity")).endswith("host name checked")


@pytest.mark.parametrize("mode", ["verify-ca", "verify-identity"])
def test_another_authority(secured: Secured, mode: TlsMode) -> None:
    """Its certificate is none for this server, which is said at once, not after all retries."""
    error = refused(Target(secured.url, tls=secured.tls(mode, ca=secured.stranger.ca)))
    assert "the certificate of the target is not accepted" in error.what
    assert "set target.tls_ca" in error.fix


def test_another_host(secured: Secured) -> None:
    """A right certificate of another host is only good enough for verify-ca."""
    url, ca = secured.url.replace("127.0.0.1", "localhost"), secured.authority.ca
    error = refused(Target(url, tls=secured.tls("verify-identity", ca=ca)))
    assert "localhost" in error.what
    assert "verify-ca" in error.fix
    assert secured.answers(secured.tls("verify-ca", ca=ca), url)


def test_a_certificate_that_has_run_out(secured: Secured) -> None:
    """It is not accepted where it is checked."""
    secured.show(*secured.authority.sign("late", days=-1))
    try:
        error = refused(Target(secured.url, tls=secured.tls("verify-ca", ca=secured.authority.ca)))
        assert "expired" in error.what
        assert "renew" in error.fix
        assert secured.answers(Tls("required"))
    finally:
        secured.show_own_again()


@pytest.fixture
def guest(secured: Secured) -> Iterator[str]:
    """The URL of an account that has to show a certificate."""
    with admin(secured.url) as session:
        session.execute("CREATE USER guest@'%' REQUIRE X509")
        session.execute("GRANT SELECT ON *.* TO guest@'%'")
        yield secured.url.replace("root@", "guest@")
        session.execute("DROP USER guest@'%'")


def test_a_certificate_of_the_client(secured: Secured, guest: str) -> None:
    """An account that asks for one lets nobody in without; the error names the setting."""
    own = {"cert": secured.client_cert, "key": secured.client_key}
    assert secured.answers(secured.tls("required", **own), guest)
    assert "tls_cert" in refused(Target(guest, tls=Tls("required"))).fix
    assert "tls_cert" in refused(Target(guest, tls=Tls("off"))).fix
    cert, key = secured.stranger.sign("stranger-client")
    with pytest.raises((TargetError, MySQLError), match=r"TLS|SSL"):  # some servers only hang up
        Target(guest, tls=secured.tls("required", cert=cert, key=key)).connect()


def test_a_server_that_insists(secured: Secured) -> None:
    """One that takes no connection without TLS says so to who comes without."""
    with admin(secured.url) as session:
        session.execute("SET GLOBAL require_secure_transport = ON")
        try:
            assert "verify-identity" in refused(Target(secured.url, tls=Tls("off"))).fix
            assert secured.answers(Tls())
        finally:
            session.execute("SET GLOBAL require_secure_transport = OFF")


@pytest.mark.parametrize("mode", MODES)
def test_a_server_without_tls(target: str, mode: TlsMode) -> None:
    """It will do for off and preferred; from required on it is an error that says what to do."""
    tls = Tls(mode)
    if mode in {"off", "preferred"}:
        session = Target(target, tls=tls).connect()
        assert (session.encryption, session.is_encrypted) == ("not encrypted", False)
        session.close()
    else:
        error = refused(Target(target, tls=tls))
        assert f'offers no TLS, and target.tls is "{mode}"' in error.what
        assert "switch TLS on" in error.fix


def test_a_fallback_is_said_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the log, with the setting that rules it out; on this machine nobody else can listen."""
    for this_machine, count in ((frozenset({"127.0.0.1"}), 0), (frozenset(), 1)):
        monkeypatch.setattr("bridge.mysql.connection.target._THIS_MACHINE", this_machine)
        with capture_logs() as said:
            place = Target(target)
            for _ in range(2):
                place.connect().close()
        assert [line["event"] for line in said] == ["not_encrypted"] * count
        assert all("target.tls" in line["fix"] for line in said)


def test_wrong_files(secured: Secured, tmp_path: Path) -> None:
    """One line and exit code 2, for a file that is not there, is none of its kind, or needs a passphrase."""
    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    locked, locked_key = secured.authority.sign("locked", passphrase="s3cret")
    _, other_key = secured.authority.sign("other")
    own = {"cert": secured.client_cert}
    for files, words in (
        ({"ca": "/nowhere.pem"}, "target.tls_ca: /nowhere.pem cannot be read: No such file"),
        ({"ca": tmp_path}, "Is a directory"),
        ({"ca": junk}, "holds no certificate"),
        ({**own, "key": "/nowhere.key"}, "/nowhere.key cannot be read"),
        ({**own, "key": other_key}, "holds no certificate with its key"),
        (own, "holds no certificate with its key"),
        ({"key": secured.client_key}, "no use without tls_cert"),
        ({"cert": locked, "key": locked_key}, "tls_key is encrypted"),
    ):
        with pytest.raises(UsageError) as raised:
            Target(secured.url, tls=secured.tls("verify-ca", **files))
        assert words in str(raised.value)
        assert raised.value.exit_code == 2
    for mode, files in (("preferred", {"ca": junk}), ("required", {"ca": junk}), ("off", own)):
        with pytest.raises(UsageError, match="verify-identity"):
            Target(secured.url, tls=secured.tls(mode, **files))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query", ["ssl_verify_identity=true", "ssl_ca=/ca.pem", "ssl_disabled=true", "ssl_mode=REQUIRED", "tls=1"]
)
def test_tls_in_a_url(query: str) -> None:
    """The driver reads it otherwise than it sounds - ssl_verify_identity switched off what it is called by - so the
    settings are named instead."""
    for role, section in (("target", "target"), ("source", "upstream")):
        with pytest.raises(UsageError, match=f"set {section}.tls") as raised:
            Target(f"mysql://root@127.0.0.1/?{query}", role=role)
        assert raised.value.exit_code == 2


def settings_file(folder: Path, secured: Secured, ca: Path) -> str:
    path = folder / "bridge.toml"
    lines = [
        f'[{section}]\nurl = "{secured.url}"\ntls = "verify-identity"\ntls_ca = "{ca}"\n'
        for section in ("target", "upstream")
    ]
    path.write_text("".join(lines))
    return str(path)


def checked(secured: Secured, folder: Path, ca: Path) -> Ended:
    capture = folder / "c.jsonl"
    capture.write_text('{"partition":0,"offset":0,"key":null,"value":"e30="}\n')
    return bridge("check", "--config", settings_file(folder, secured, ca), "--input", str(capture))


def test_check_says_what_is_in_force(secured: Secured, target: str, tmp_path: Path) -> None:
    """For the target and the upstream, from the connection itself; a wrong authority is to be fixed."""
    lines = checked(secured, tmp_path, secured.authority.ca).out.splitlines()
    for section in ("target", "upstream"):
        assert [line for line in lines if line.startswith(f"OK    the connection to the {section}: TLSv1.3, ")]
    ended = checked(secured, tmp_path, secured.stranger.ca)
    assert ended.code == 2
    assert any(
        line.startswith("FAIL  the certificate of the target is not accepted") for line in ended.out.splitlines()
    )
    plain = bridge("check", "--target", target, "--input", str(tmp_path / "c.jsonl")).out
    assert 'the connection to the target: not encrypted (target.tls = "preferred")' in plain
    assert "switch TLS on at the server" in plain


def test_the_settings_of_commands(secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file, the environment and --set; a wrong one is exit code 2 or 3 and one line."""
    config = settings_file(tmp_path, secured, secured.stranger.ca)
    ended = bridge("status", "--config", config)
    assert (ended.code, len(ended.err.splitlines())) == (3, 1)
    assert "not accepted" in ended.err
    ended = bridge("status", "--config", config, "--set", f"target.tls_ca={secured.authority.ca}")
    assert (ended.code, "no pipeline" in ended.err) == (1, True)
    monkeypatch.setenv("BRIDGE_TARGET_TLS", "verify")
    ended = bridge("status", "--config", config)
    assert (ended.code, "target.tls" in ended.err, "verify-identity" in ended.err) == (2, True, True)


def test_a_lost_handshake_is_worth_a_retry() -> None:
    """A connection that ends in the midst of one is lost like any other."""
    for cause, is_final in ((ssl.SSLEOFError(8, "EOF"), False), (ssl.SSLError(1, "alert"), True)):
        error = OperationalError(2003, "Can't connect")
        error.__context__ = cause
        assert (Tls("required").refusal(error, "target", "there") is not None) == is_final


def test_a_server_that_works_is_waited_for_over_tls(secured: Secured) -> None:
    """A silence longer than the timeout ends nothing where the server is at work; the answer comes whole."""
    session = Target(secured.url, tls=secured.tls("required"), timeout_seconds=0.5).connect(autocommit=True)
    assert session.is_encrypted
    assert session.rows("SELECT SLEEP(2), REPEAT('x', 100000)") == [(0, "x" * 100_000)]
    assert session.value("SELECT 1") == 1
    session.close()


def test_a_silent_wire_is_a_lost_connection_over_tls(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stalled ends by the timeout."""
    monkeypatch.setattr("bridge.mysql.connection.target.LOGIN_SECONDS", 1.0)
    with Proxy(port_of(secured.url)) as proxy:
        url = f"mysql://root@127.0.0.1:{proxy.port}/"
        session = Target(url, tls=secured.tls("required"), timeout_seconds=0.5).connect(autocommit=True)
        proxy.stall()
        with pytest.raises(LostConnectionError):
            session.value("SELECT 1")
        session.close()
        proxy.go_on()


def test_a_stop_cuts_a_connection_under_its_reader_over_tls(secured: Secured) -> None:
    """Who waits for an answer ends at once, though nobody else answers."""
    session = Target(secured.url, tls=secured.tls("required")).connect(autocommit=True)
    began = time.monotonic()
    cutting = threading.Timer(1, session.cut)
    cutting.start()
    with pytest.raises(LOST):
        session.value("SELECT SLEEP(60)")
    cutting.join()
    assert time.monotonic() - began < 30
    session.close()
