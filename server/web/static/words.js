// Names of states, levels and columns. The texts about reasons and endings come from study_protocol/study/reasons.py.
import { ENDINGS, FOR_GOOD, REASONS } from "/reasons.js";
import { when } from "/static/numbers.js";

export const LEVELS = { instance: "each patient", client: "each hospital as a whole" };
export const DEFINITIONS = { classical: "classical", bayesian: "Bayesian" };
// In the order of the colours and dashes that charts/loss.json gives them, whichever of them a study has.
export const LINES = Object.values(LEVELS).flatMap((level) => Object.values(DEFINITIONS).map((definition) => `${level}, ${definition}`));
export const limitName = (limit) => `${LEVELS[limit.level]}, ${DEFINITIONS[limit.definition]}`;

const STATES = {
  draft: ["calm", "Draft", "The lead has not given the initial model yet."],
  enrolling: ["calm", "Hospitals are joining", "Rounds begin when the lead starts the study."],
  running: ["live", "Running", ""],
  paused: ["care", "Paused", ""],
};

// Of endings. A normal end is good news.
const TONES = { stopped: "calm", deleted: "calm", "database-differs": "bad" };

// [tone, name, sentence]
export function stateOf(study, limits = null) {
  if (study.stop_reason !== null) {
    const [name, sentence] = ENDINGS[study.stop_reason];
    return [TONES[study.stop_reason] ?? "good", `Finished: ${name}`, sentence];
  }
  if (study.pause_reason?.code === "questions-first") return ["live", "Takes questions", study.pause_reason.detail];
  if (limits && asksOnly(study, limits)) return ["good", "Training done, takes questions", ""];
  const [tone, name, sentence] = STATES[study.state];
  if (study.resumed_at && study.state === "running") return [tone, name, `It resumed by itself (${when(study.resumed_at)}): enough hospitals were back.`];
  return [tone, name, study.pause_reason?.detail ?? sentence];
}

export const reasonWords = (reason) => REASONS[reason] ?? (reason && `${reason}.`);

// Whether all rounds of a study that trains are done, so that only questions may follow.
const asksOnly = ({ state, settings, under_way }, limits) =>
  state === "running" && !under_way && settings.training && settings.statistics && limits.some((limit) => limit.epsilon !== null && limit.rounds_left_estimate === 0);

const ROUND_STATES = { collecting: "under way", settled: "charged, model follows", released: "released", abandoned: "abandoned", stopped: "stopped" };
export const roundState = (round) => ROUND_STATES[round.state] ?? round.state;

// [tone, name, sentence]. A failed query that is asked again waits once more.
const QUERY_STATES = {
  waiting: (query) => ["care", "Waits for hospitals", `${query.allowed} of at least ${query.needed} hospitals say yes${query.refused ? `, ${query.refused} no` : ""}.`],
  asked: (query) => ["live", "Being computed", `Round ${query.round} is under way.`],
  answered: () => ["good", "Answered", ""],
  failed: (query) => ["care", "Failed", `${reasonWords(query.reason)}${FOR_GOOD.includes(query.reason) ? "" : " Asking again starts a new attempt."}`],
};
export const queryState = (query) => QUERY_STATES[query.state](query);
// Without a title what it asks, without which of several rows counts.
export const queryTitle = (query) => (query.document.question.title || shortened(query.words.split(". ")[0])) + (query.place ? ` (step ${query.place.step} of ${query.place.steps})` : "");
const shortened = (words) => (words.length > 120 ? `${words.slice(0, 119).trimEnd()}…` : words);

const QUERY_KINDS = {
  count: "number of patients", table: "table", tables: "several tables", moments: "means and standard deviations", covariance: "covariances",
  quantiles: "quantiles", survival: "survival", evaluation: "evaluation of a model", "linear-regression": "linear regression",
  marginals: "crossed tables for synthetic records", sites: "whether hospitals record alike",
  distances: "what training has cost each patient", glm: "regression with intervals",
};
export const kindName = (kind) => QUERY_KINDS[kind] ?? kind;

// Columns of answers; others are the question's own.
const COLUMNS = { estimate: "Estimate", dp_error: "± from noise", sampling_error: "± from sampling", raw: "Before adjustment", patients: "Patients", statistic: "Statistic", degrees: "Degrees of freedom", std_error: "Standard error", p_value: "p" };
export const columnName = (name) => COLUMNS[name] ?? name;

const OBSERVERS = { releases: "readers of the released models and answers", coordinator: "the coordinator, which sees who takes part and what they send" };
export const observerName = (observer) => OBSERVERS[observer] ?? observer;

// Against whom a number is void, in its certificate's own words; "" where it holds against everybody it names.
export const voidAgainst = (limit) => limit.certificate?.assumption.match(/does not hold against [^;]*/)?.[0] ?? "";
