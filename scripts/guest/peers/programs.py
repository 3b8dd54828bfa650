"""What users run: databases, mail, versions, packages; each on a new ext4 of the device. Those that wait for the disk, and those that do not."""
import contextlib
import os
import random
import sqlite3
import subprocess
import threading
import time

from ..problem import Failure
from .files import MADE, ROOT, archive, file_system, finished, make_files

REPOSITORY, PACKAGE = f"{MADE}/repository", f"{MADE}/package.deb"
ROW = "x" * 100
MAIL_BYTES = 4000
PGBENCH_PORT = "5499"


def sqlite(journal, synchronous):
    """Transactions of one row each, one after the other."""
    def measure(stand, peer):
        with file_system(stand, peer) as cost:
            connection = sqlite3.connect(f"{ROOT}/db", isolation_level=None)
            with contextlib.closing(connection):
                for words in (f"pragma journal_mode={journal}", f"pragma synchronous={synchronous}", "create table t (n integer primary key, v text)"):
                    connection.execute(words)
                done, seconds = timed(stand, lambda number: connection.execute("insert into t values (?, ?)", (number, ROW)))
            return {"per_second": done / seconds, **cost.each(done)}
    return measure


def mail(users):
    """Deliveries into Maildirs: a file is written, synchronised and renamed, and its directory synchronised."""
    def measure(stand, peer):
        with file_system(stand, peer) as cost:
            done, threads = [], []
            for user in range(users):
                for name in ("tmp", "new"):
                    os.makedirs(f"{ROOT}/{user}/{name}")
                threads.append(threading.Thread(target=lambda user=user: done.append(timed(stand, lambda number: deliver(f"{ROOT}/{user}", number)))))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if len(done) != users:
                raise Failure(f"{users - len(done)} of {users} users could not deliver on {peer.path}")
            return {"per_second": sum(count / seconds for count, seconds in done), **cost.each(sum(count for count, _ in done))}
    return measure


def deliver(home, number):
    """One mail."""
    with open(f"{home}/tmp/{number}", "wb") as file:
        file.write(b"m" * MAIL_BYTES)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{home}/tmp/{number}", f"{home}/new/{number}")
    directory = os.open(f"{home}/new", os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def clone(stand, peer):
    """git clone of a repository in memory, and all of it to the disk."""
    stand.guest.need("git", "git")
    make_repository(stand)
    with file_system(stand, peer) as cost:
        seconds = finished([["git", "-c", "safe.directory=*", "clone", "--quiet", "--no-local", REPOSITORY, f"{ROOT}/clone"]], peer)
        return {"clone_s": seconds, **cost.all()}


def packages(stand, peer):
    """A tree of small files like that of npm ci: unpacked, removed, unpacked anew; then all of it to the disk."""
    tree = archive("modules", 1200, 150, 4000)
    with file_system(stand, peer) as cost:
        steps = f"cd {ROOT} && tar xf {tree} && rm -r modules && tar xf {tree}"
        return {"install_s": finished([["sh", "-c", steps]], peer), **cost.all()}


def unpack(*options):
    """dpkg -i of a package with some hundred files, each of which it synchronises."""
    def measure(stand, peer):
        stand.guest.need("dpkg", "dpkg")
        make_package(stand)
        with file_system(stand, peer) as cost:
            database = f"{ROOT}/root/var/lib/dpkg"
            for name in ("updates", "info"):
                os.makedirs(f"{database}/{name}")
            with open(f"{database}/status", "w", encoding="utf-8"):
                pass
            os.sync()
            words = ["dpkg", f"--root={ROOT}/root", "--log=/dev/null", *options, "-i", PACKAGE]
            return {"unpack_s": finished([words], peer), **cost.all()}
    return measure


def pgbench(stand, peer):
    """PostgreSQL as it is by default: pgbench, one client."""
    newest = sorted((name for name in os.listdir("/usr/lib/postgresql")), key=float)[-1:] if os.path.isdir("/usr/lib/postgresql") else []
    stand.guest.check_tool(f"/usr/lib/postgresql/{newest[0]}/bin/initdb" if newest else None, "no PostgreSQL here (Debian: postgresql)")
    stand.guest.need("pgbench", "postgresql-client")
    programs = f"/usr/lib/postgresql/{newest[0]}/bin"
    # It refuses to be run by root.
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    with file_system(stand, peer) as cost:
        os.mkdir(f"{ROOT}/pg")
        os.chown(f"{ROOT}/pg", 65534, 65534)
        data = f"{ROOT}/pg/data"
        stand.run(*user, f"{programs}/initdb", "--pgdata", data, "--auth", "trust", "--username", "bench", "--no-sync", "--no-locale")
        server = subprocess.Popen([*user, f"{programs}/postgres", "-D", data, "-k", "/tmp", "-p", PGBENCH_PORT, "-h", ""], stderr=subprocess.DEVNULL)
        try:
            client = ["--host", "/tmp", "--port", PGBENCH_PORT, "--username", "bench", "postgres"]
            until = time.monotonic() + 60
            while subprocess.run(["pg_isready", "--quiet", *client[:-1]], check=False).returncode != 0 and time.monotonic() < until:
                time.sleep(0.1)
            stand.run("pgbench", "--initialize", "--quiet", *client)
            cost.begin()
            told = stand.run("pgbench", "--time", str(stand.guest.settings["seconds"]), "--client", "1", *client).stdout
        finally:
            server.terminate()
            server.wait(60)
        facts = dict(line.split(" = ", 1) for line in told.splitlines() if " = " in line)
        return {"per_second": float(facts["tps"].split()[0]), **cost.all()}


def timed(stand, step):
    """A step again and again, for as long as a measurement is. How often, and seconds."""
    begin, number = time.monotonic(), 0
    until = begin + stand.guest.settings["seconds"]
    while time.monotonic() < until:
        step(number)
        number += 1
    return number, time.monotonic() - begin


def make_repository(stand):
    """Some commits of some hundred files, the same each time."""
    if os.path.exists(REPOSITORY):
        return
    git = ["git", "-C", REPOSITORY, "-c", "user.name=a", "-c", "user.email=a@b"]
    make_files(REPOSITORY, 400, 20, 8000)
    for words in (["git", "init", "--quiet", REPOSITORY], [*git, "add", "--all"], [*git, "commit", "--quiet", "-m", "1"]):
        stand.run(*words)
    chance = random.Random(7)
    for number in range(10):
        for _ in range(20):
            with open(f"{REPOSITORY}/{chance.randrange(20)}/changed", "ab") as file:
                file.write(chance.randbytes(300))
        stand.run(*git, "add", "--all")
        stand.run(*git, "commit", "--quiet", "-m", str(number))
    stand.run(*git, "gc", "--quiet")


def make_package(stand):
    """A package of Debian, without compression."""
    if os.path.exists(PACKAGE):
        return
    make_files(f"{MADE}/package/usr/share/peers", 200, 10, 8000)
    os.makedirs(f"{MADE}/package/DEBIAN")
    with open(f"{MADE}/package/DEBIAN/control", "w", encoding="utf-8") as out:
        out.write("Package: peers\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: files\n")
    stand.run("dpkg-deb", "--root-owner-group", "-Znone", "--build", f"{MADE}/package", PACKAGE)


WORKLOADS = {
    "SQLite, rollback journal": sqlite("delete", "full"), "SQLite, write-ahead log, full": sqlite("wal", "full"),
    "SQLite, write-ahead log, normal": sqlite("wal", "normal"), "mail, one user": mail(1), "mail, four users": mail(4), "dpkg": unpack(),
    "dpkg without synchronising": unpack("--force-unsafe-io"), "git clone": clone, "packages": packages, "pgbench": pgbench,
}
"""By name, in the order in which a device goes through them."""
