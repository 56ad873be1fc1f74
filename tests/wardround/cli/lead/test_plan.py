"""`wardround plan` as a person types it: what it says, what it writes, and what it refuses."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from study_protocol.study.plan_of import plan_of
from tests.client_sdk.guard.test_monitored_charges import closed_form
from tests.factories.commands import Run, write_settings
from tests.factories.settings import limit
from wardround.cli.shared.settings_file import read_settings

DOCS = Path(__file__).parents[4] / "docs"
EXAMPLE = DOCS / "planning.toml"


def squeezed(text: str) -> list[str]:
    """The words of every line, whatever the terminal made of the frames."""
    lines = (" ".join(re.sub(r"[│┃┏┓┗┛┡┩┳╇┻┴├┤┼─━└┘╭╮╰╯]", " ", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def study(path: Path, **privacy: object) -> Path:
    limits = [limit("instance", epsilon=8.0), limit("instance", "bayesian", epsilon=5.0)]
    return write_settings(
        path / "study.json", **({"max_steps": 300, "sampling_rate": 0.05, "limits": limits} | privacy)
    )


def without_rule(text: str) -> str:
    """As a settings file was before there was a choice."""
    return re.sub(r"^enforcement = .*\n", "", text, flags=re.M)


EXAMPLES = re.findall(r"^\$ wardround (plan .*)$", (DOCS / "planning.md").read_text(), re.M)


@pytest.mark.parametrize("command", EXAMPLES, ids=[str(place) for place in range(len(EXAMPLES))])
def test_the_examples_of_the_page_say_what_the_page_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "study.toml").write_text(EXAMPLE.read_text())
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "planning.md").read_text()
    shown = page.split(f"$ wardround {command}\n", 1)[1].split("```", 1)[0].split("$ wardround", 1)[0]
    said = squeezed(run(*command.split()).stdout)
    assert squeezed(shown)
    assert all(line in said for line in squeezed(shown) if line != "…")


@pytest.mark.slow
def test_what_only_a_hospital_would_notice_is_noted(run: Run, tmp_path: Path) -> None:
    path = study(tmp_path)
    sound = run("plan", str(path)).stderr
    settings = json.loads(path.read_text())
    settings["training"]["task"] = "logistic-regresion"
    settings["privacy"]["expected_clients"] = settings["schedule"]["min_clients"] / 2
    path.write_text(json.dumps(settings))
    noted = " ".join(run("plan", str(path)).stderr.split())
    for words in ("no package here offers it", "Rounds will be abandoned"):
        assert words in noted
        assert words not in " ".join(sound.split())


def test_it_says_what_the_coordinator_will_do(run: Run, tmp_path: Path) -> None:
    found = json.loads(run("plan", str(study(tmp_path)), "--json").stdout)
    assert found["rounds"] < found["at_most_rounds"] <= 300
    assert found["reason"] == "budget-exhausted"
    (classical, bayesian) = found["limits"]
    assert classical["definition"] == "classical"
    assert [one["name"] for one in classical["reports"]] == ["privacy-loss distribution"]
    assert classical["reports"][0]["epsilon"] < classical["enforced"] <= 8.0
    assert bayesian["enforced"] <= 5.0
    assert found["stopped_by"] == [{"level": "instance", "definition": "bayesian"}]
    assert [one["records"] for one in found["noise_against_signal"]] == [100, 300, 1000, 3000, 10000]


@pytest.mark.quick("epsilon-privacy.limits.1.epsilon")
@pytest.mark.parametrize(
    ("solve", "changed"),
    [
        ("noise", "privacy.noise_multiplier"),
        ("rounds", "privacy.max_steps"),
        ("epsilon", "privacy.limits.1.epsilon"),
        ("order", "privacy.bayesian.filter_order"),
    ],
)
def test_what_is_solved_for_is_written_and_then_holds(run: Run, tmp_path: Path, solve: str, changed: str) -> None:
    source, target = study(tmp_path), tmp_path / "solved.json"
    found = json.loads(run("plan", str(source), "--solve", solve, "-o", str(target), "--json").stdout)
    assert changed in found["settings"]
    assert ("privacy.classical_order" in found["settings"]) == (solve == "order")
    assert (found["settings"].get("privacy.limits.0.enforcement") == "fixed-plan") == (solve != "order")
    again = json.loads(run("plan", str(target), "--json").stdout)
    assert {**again, "settings": found["settings"]} == found
    if solve != "order":
        assert again["reason"] == "max-steps-reached"
    before, after = (plan_of(read_settings(path)) for path in (source, target))
    assert before.bayesian is not None
    assert after.bayesian is not None
    assert after.bayesian.orders == before.bayesian.orders


def test_a_toml_file_keeps_its_comments(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "solved.toml"
    said = run("plan", str(EXAMPLE), "--solve", "noise", "-o", str(target)).stdout
    before, after = EXAMPLE.read_text().splitlines(), target.read_text().splitlines()
    ((old, new),) = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert old.split(" ")[0] == "noise_multiplier"
    assert old.split("#")[1] == new.split("#")[1]
    noise = tomllib.loads(target.read_text())["privacy"]["noise_multiplier"]
    assert f"privacy.noise_multiplier = {noise!r}" in said


def test_a_limit_without_a_rule_keeps_its_order_and_a_line_says_what_the_tight_rule_gives(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(without_rule(EXAMPLE.read_text()))
    planned = run("plan", str(path))
    assert "order 4 (at least 1.25)" in " ".join(planned.stdout.split())
    (line,) = [line for line in planned.stderr.splitlines() if "enforcement" in line]
    tight, before = re.findall(r"noise multiplier of ([\d.]+) .*, not ([\d.]+): wardround plan --solve noise", line)[0]
    assert float(tight) < 0.95 * float(before)
    solved = run("plan", str(path), "--solve", "noise", "-o", str(tmp_path / "tight.toml"))
    assert 'enforcement = "fixed-plan", because all steps are planned' in solved.stderr
    chosen = tomllib.loads((tmp_path / "tight.toml").read_text())["privacy"]
    assert (chosen["noise_multiplier"], chosen["limits"][0]["enforcement"]) == (float(tight), "fixed-plan")
    assert "enforcement" not in run("plan", str(tmp_path / "tight.toml")).stderr


def test_where_the_order_ends_a_study_early_the_line_says_how_many_rounds_more(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(without_rule(EXAMPLE.read_text()).replace("max_steps = 100", "max_steps = 200"))
    (line,) = [line for line in run("plan", str(path)).stderr.splitlines() if "enforcement" in line]
    more, before = map(int, re.findall(r"(\d+) rounds would begin at this noise, not (\d+)", line)[0])
    assert 100 < before < more < 200
    fixed = json.loads(run("plan", str(path), "--solve", "rounds", "--json").stdout)
    assert fixed["rounds"] == more


def test_a_plan_with_one_step_too_many_is_refused_and_says_what_fits(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    fitting = json.loads(run("plan", str(EXAMPLE), "--solve", "rounds", "--json").stdout)["rounds"]
    for steps, code in ((fitting, 0), (fitting + 1, 1)):
        path.write_text(EXAMPLE.read_text().replace("max_steps = 100", f"max_steps = {steps}"))
        said = " ".join(run("plan", str(path), code=code).stderr.split())
        assert ("no round can begin" in said) == (code == 1)
    assert f"the whole plan of {fitting + 1} steps spends" in said
    assert f"at most {fitting} steps fit (max_steps)" in said
    assert "or a noise multiplier of" in said


def test_questions_beside_a_fixed_plan_get_a_share(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "study.toml", tmp_path / "solved.toml"
    questions = "\n[statistics]\nmax_queries = 20\nmax_cells = 100\n"
    source.write_text(without_rule(EXAMPLE.read_text()) + questions)
    said = run("plan", str(source), "--solve", "noise", "-o", str(target)).stderr
    assert "note: statistics.share = 0.2" in said
    written = tomllib.loads(target.read_text())
    assert written["statistics"]["share"] == 0.2
    assert written["privacy"]["limits"][0]["enforcement"] == "fixed-plan"
    assert "statistics.share" not in run("plan", str(target)).stderr


def test_a_plan_with_a_share_says_that_its_number_counts_all_of_it(run: Run, tmp_path: Path) -> None:
    source, words = tmp_path / "study.toml", "counts all of its share for questions (statistics.share = 0.1), whether"
    source.write_text(EXAMPLE.read_text() + "\n[statistics]\nmax_queries = 20\nmax_cells = 100\nshare = 0.1\n")
    assert words in " ".join(run("plan", str(source)).stdout.split())
    assert "share for questions" not in run("plan", str(EXAMPLE)).stdout


def test_a_sum_of_squares_says_why_its_number_is_the_limit(run: Run, tmp_path: Path) -> None:
    run("study", "template", "-o", str(tmp_path / "study.toml"))
    planned = " ".join(run("plan", str(tmp_path / "study.toml")).stdout.split())
    assert "kept by a sum of squares is stated whole, from the first round on" in planned
    assert "kept by a sum of squares" not in run("plan", str(EXAMPLE)).stdout


def test_a_plan_with_evaluations_says_why_its_number_is_the_limit(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "study.toml"
    asked = "\n[statistics]\nmax_queries = 20\nmax_cells = 1000\n[evaluation]\nshare = 0.2\nevery = 50\n"
    asked += '[evaluation.question]\nprediction = "binary"\nnoise_multiplier = 8.0\n'
    source.write_text(EXAMPLE.read_text() + asked)
    planned = " ".join(run("plan", str(source)).stdout.split())
    assert "│ 8.000 │ 100 │ 8.000 │ 0.000 │ the whole plan │" in planned
    assert "may lose as much as the limit by evaluations, which are no part of the plan: so ε is the limit." in planned


def test_a_plan_says_what_is_kept_for_windows_and_that_too_many_are_refused(run: Run, tmp_path: Path) -> None:
    source, page = tmp_path / "study.toml", (DOCS / "monitoring.md").read_text()
    sections = page.split("```toml\n", 1)[1].split("```", 1)[0]
    source.write_text(EXAMPLE.read_text() + sections)
    result = run("plan", str(source))
    # Rounded up from the closed form of a Gaussian mechanism (Balle & Wang 2018), with the study's own delta.
    each, every = (closed_form(math.sqrt(count) / 13.3, delta=1e-5) for count in (1, 8))
    text = " ".join(result.stdout.split())
    kept = re.search(
        r"Kept for 8 windows of later patients, due from 2027-07-30 to 2029-04-20: (.*?)\.( No other)", text
    )
    assert kept is not None
    numbers = [float(each) for each in re.findall(r"\d+\.\d+", kept[1])]
    assert each <= numbers[0] <= each * 1.01 + 0.001
    assert every <= numbers[1] <= every * 1.01 + 0.001
    assert "together pass a limit" not in result.stderr
    values = json.loads(run("plan", str(source), "--json").stdout)["kept_for_windows"]
    assert [(kept["level"], kept["definition"]) for kept in values] == [("instance", "classical")]
    assert each <= values[0]["each"] <= numbers[0]
    source.write_text(EXAMPLE.read_text() + sections.replace("13.3", "0.3"))
    assert "refuses these settings: monitoring: the 8 windows" in run("plan", str(source)).stderr


@pytest.mark.parametrize(
    ("solve", "words"),
    [
        ("order", "--solve order finds nothing: no limit of these settings is kept at an order"),
        ("rounds", "--solve rounds changes nothing: the settings have what it finds"),
    ],
)
def test_a_search_that_finds_no_other_number_says_so(run: Run, tmp_path: Path, solve: str, words: str) -> None:
    source, target = tmp_path / "study.toml", tmp_path / "same.toml"
    source.write_text(EXAMPLE.read_text())
    if solve == "rounds":
        run("plan", str(EXAMPLE), "--solve", solve, "-o", str(tmp_path / "most.toml"))
        source = tmp_path / "most.toml"
    answer = run("plan", str(source), "--solve", solve, "-o", str(target))
    assert words in answer.stderr
    assert f"{target.name}: written, with the same settings" in " ".join(answer.stdout.split())
    assert target.read_text() == source.read_text()


def test_a_file_that_exists_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "solved.toml"
    target.write_text("mine")
    assert "exists already" in run("plan", str(EXAMPLE), "--solve", "noise", "-o", str(target), code=1).stderr
    assert target.read_text() == "mine"
    other = tmp_path / "solved.json"
    assert "must be TOML" in run("plan", str(EXAMPLE), "--solve", "noise", "-o", str(other), code=1).stderr
    assert not other.exists()


def test_a_target_that_is_a_link_or_cannot_be_written_leaves_nothing_behind(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.toml").symlink_to(tmp_path / "elsewhere.toml")
    said = run("plan", str(EXAMPLE), "--solve", "noise", "-o", str(tmp_path / "link.toml"), code=1).stderr
    assert "exists already" in said

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "solved.toml"))

    monkeypatch.setattr("os.fsync", full)
    said = run("plan", str(EXAMPLE), "--solve", "noise", "-o", str(tmp_path / "solved.toml"), code=1).stderr
    assert "No space left on device" in said
    assert [path.name for path in tmp_path.iterdir()] == ["link.toml"]


def test_line_ends_stay_as_they_are(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "windows.toml", tmp_path / "solved.toml"
    source.write_bytes(EXAMPLE.read_bytes().replace(b"\n", b"\r\n"))
    run("plan", str(source), "--solve", "noise", "-o", str(target))
    assert target.read_bytes().count(b"\r\n") == target.read_bytes().count(b"\n") == source.read_bytes().count(b"\n")


@pytest.mark.slow
def test_whatever_a_file_holds_the_error_is_one_that_a_person_can_mend(run: Run, tmp_path: Path) -> None:
    text, path = EXAMPLE.read_text(), tmp_path / "study.toml"
    cases = {
        "privacy.max_steps: must be a valid integer": text.replace("max_steps = 100", "max_steps = 2024-01-01"),
        "nested too deeply": "a = " + "[" * 20_000,
        "privacy: must be": "privacy = 1",
        "privacy.masking: must be": "privacy = {masking = 5}",
        "clip_norm: must be between 1e-50 and 1e+50": text.replace("clip_norm = 2.0", "clip_norm = 1e308"),
        "this name or table stands in the file already": text + "\n[privacy]\n",
    }
    for said, written in cases.items():
        assert written != text
        path.write_text(written)
        assert said in run("plan", str(path), code=1).stderr, said
    path.write_bytes(b"# \xfc\n" + text.encode())
    assert "no text in UTF-8" in run("plan", str(path), code=1).stderr


@pytest.mark.slow
def test_limits_may_be_left_to_the_data(run: Run, tmp_path: Path) -> None:
    path = study(tmp_path)
    noise = [
        json.loads(run("plan", str(path), "--solve", "noise", "--by", by, "--json").stdout)
        for by in ("all", "classical")
    ]
    multipliers = [one["settings"]["privacy.noise_multiplier"] for one in noise]
    assert multipliers[1] < multipliers[0]
    assert noise[1]["rounds"] < noise[1]["at_most_rounds"] == 300


@pytest.mark.slow
def test_wrong_usage_is_named(run: Run, tmp_path: Path) -> None:
    cases = [
        (("plan", str(tmp_path / "none.toml")), 1, "none.toml: No such file"),
        (("plan", str(EXAMPLE), "-o", "x.toml"), 2, "say what to solve for"),
        (("plan", str(EXAMPLE), "--records", "0"), 2, "at least one record"),
        (("plan", str(EXAMPLE), "--solve", "all"), 2, "'all' is not one of"),
        (("plan", str(EXAMPLE), "--solve", "noise", "--by", "bayesian"), 1, "the settings have no bayesian limit"),
    ]
    for arguments, code, text in cases:
        result = run(*arguments, code=code)
        assert text in " ".join(result.stderr.replace("│", " ").split()), arguments
        assert "Traceback" not in result.output


def test_a_study_that_could_not_begin_says_why_and_the_way_out(run: Run, tmp_path: Path) -> None:
    path = study(tmp_path, noise_multiplier=0.1)
    result = run("plan", str(path), code=1)
    assert "no round can begin" in result.stderr
    assert "wardround plan --solve noise" in result.stderr
    assert "0 of 300 within max_steps" in result.stdout
    said = run("plan", str(path), "--solve", "rounds", code=1).stderr
    assert "cannot be kept for one round with noise multiplier 0.1" in said


def test_an_order_at_which_no_noise_is_enough_is_named_with_the_least_that_works(run: Run, tmp_path: Path) -> None:
    path = study(tmp_path, classical_order=0.5)
    assert re.search(r"larger classical_order, at least 1\.\d+", run("plan", str(path), code=1).stderr)


def test_what_the_coordinator_would_refuse_is_said(run: Run, tmp_path: Path) -> None:
    text = without_rule(EXAMPLE.read_text()).replace("epsilon = 8.0", "epsilon = 30.0")
    (tmp_path / "wide.toml").write_text(text)
    result = run("plan", str(tmp_path / "wide.toml"))
    assert "refuses these settings without --i-know" in result.stderr
    assert "--i-know" not in run("plan", str(EXAMPLE)).stderr


def test_a_bayesian_limit_that_can_gain_nothing_is_said(run: Run, tmp_path: Path) -> None:
    for records, gains in ((10, False), (1_000_000, True)):
        sample = {"records": records, "source": "members"}
        path = study(tmp_path, accounting_sample=sample, bayesian={"adversary": "path"}, noise_multiplier=0.8)
        assert ("has no benefit" in run("plan", str(path)).stderr) == (not gains)


def test_noise_against_signal_for_given_sizes_and_a_given_model(run: Run) -> None:
    said = squeezed(run("plan", str(EXAMPLE), "--records", "40", "--records", "200", "--parameters", "70000").stdout)
    (small,) = [line for line in said if line.startswith("40 ")]
    # 10 records a step at clip norm 2 under noise 4; four hospitals, 100 steps: 5 · 20 = 100 against √70,000 = 265.
    assert small == "40 10 20 4 5 100 0.378, the noise is larger"
    (large,) = [line for line in said if line.startswith("200 ")]
    assert large == "200 50 100 4 25 500 1.89"


@pytest.mark.slow
def test_it_loads_neither_torch_nor_the_network() -> None:
    program = (
        "import sys\nfrom wardround.cli.main import build\n"
        f"try: build()(['plan', {str(EXAMPLE)!r}])\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'httpx', 'socketserver') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_noise_schedule_is_shown_and_its_factors_are_kept(run: Run, tmp_path: Path) -> None:
    stages = [{"rounds": 100, "factor": 1.4}, {"rounds": 200, "factor": 1.0}]
    limits = [limit("instance", epsilon=4.0)]
    path = write_settings(
        tmp_path / "study.json",
        bayesian=False,
        max_steps=300,
        sampling_rate=0.05,
        limits=limits,
        noise_schedule=stages,
    )
    said = squeezed(run("plan", str(path)).stdout)
    assert "noise by round 100 rounds at 1.4, 200 rounds at 1. A round that is abandoned uses up its place" in said
    target = tmp_path / "found.json"
    run("plan", str(path), "--solve", "noise", "-o", str(target))
    before, found = read_settings(path).privacy, read_settings(target).privacy
    assert found.noise_multiplier != before.noise_multiplier
    assert found.noise_schedule == before.noise_schedule
    shown = json.loads(run("plan", str(target), "--json").stdout)
    assert (shown["rounds"], shown["noise_schedule"]) == (300, stages)
    refused = run("plan", str(path), "--solve", "rounds", code=1)
    assert "a noise schedule says how many rounds there are: solve for noise or epsilon" in refused.stderr
