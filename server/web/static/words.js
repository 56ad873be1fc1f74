// What states, reasons and levels are called, and what to do about them. Every reason that a coordinator knows is here.

export const LEVELS = { instance: "each patient", client: "each hospital as a whole" };
export const DEFINITIONS = { classical: "classical", bayesian: "Bayesian" };
// In the order of the colours and dashes that charts/loss.json gives them, whichever of them a study has.
export const LINES = Object.values(LEVELS).flatMap((level) => Object.values(DEFINITIONS).map((definition) => `${level}, ${definition}`));
export const limitName = (limit) => `${LEVELS[limit.level]}, ${DEFINITIONS[limit.definition]}`;

const ENDINGS = {
  "budget-exhausted": ["good", "Finished: the budget is used", "The next round could have passed a limit, so it never began. This is how a study with a budget ends."],
  "max-queries-reached": ["good", "Finished: all queries are answered", "As many queries as statistics.max_queries allows were charged, and nothing is left to train."],
  "max-steps-reached": ["good", "Finished: all rounds are done", "The study took every step that its settings allow."],
  stopped: ["calm", "Finished: ended by its operator", "What was charged stays charged. No round will follow."],
  deleted: ["calm", "Deleted", "The operator deleted it before it began. Its ledger is kept."],
  "database-differs": ["bad", "Ended: the database was changed", "Somebody changed the database without the coordinator's key: what stands there may be theirs, so no number is shown. Keep a copy of the database, find out who did it, and restore database and files together from a backup, or open a new study."],
};

const STATES = {
  draft: ["calm", "Draft", "The operator has not given the initial model yet."],
  enrolling: ["calm", "Hospitals are joining", "Rounds begin when the operator starts the study."],
  running: ["live", "Running", ""],
  paused: ["care", "Paused", "No new round begins until the operator resumes the study."],
};

// [tone, name, sentence]. A normal end is good news; only what somebody has to act on is bad.
export function stateOf(study) {
  if (study.stop_reason !== null) return ENDINGS[study.stop_reason] ?? ["calm", "Finished", study.stop_reason];
  const [tone, name, sentence] = STATES[study.state] ?? ["calm", study.state, ""];
  return [tone, name, study.pause_reason ? `${pauseWords(study.pause_reason)} ${sentence}`.trim() : sentence];
}

const pauseWords = (reason) => (typeof reason === "string" ? (reasonWords(reason)?.[0] ?? reason) : (reason.detail ?? reason.words ?? reason.code ?? ""));

const LOST = "A stored file is gone. Restore database and files together from a backup.";
const SETTINGS = "No secure sum of these hospitals is sound under the study's settings. Open a new study with other masking settings.";

// reason -> [what happened, what to do]
const REASONS = {
  "too-few-clients": ["Too few hospitals answered", "Look whether the hospitals' programs run (`wardround doctor` at each), or give rounds more time in a new study."],
  "too-few-keys": ["Too few hospitals began the secure sum", "Look whether the hospitals' programs run and can reach the coordinator."],
  "too-few-shares": ["Too few hospitals went on with the secure sum", "A hospital stopped after it had begun. Look at its program and its connection."],
  "too-few-survivors": ["Too few hospitals sent their masked update", "Training may take longer than the step's deadline: compare `step_deadline_seconds` with what hospitals need."],
  "too-sparse-survivors": ["Too many neighbours on the ring were lost", "More hospitals must stay until the end of a round, or a new study needs more `neighbours`."],
  "too-few-replies": ["Too few hospitals helped to open the sum", "Hospitals left between sending and opening. Look at their connections."],
  expired: ["The secure sum took too long", "Its secrets were erased, as the settings say (`expiry_seconds`). Look for slow hospitals."],
  "canary-mismatch": ["The sum did not come out right", "A hospital sent something malformed. Nothing was released. If it happens again, ask the hospitals to update their programs."],
  stopped: ["The operator ended the study", "Nothing to do."],
  "database-differs": ["The database was changed", "Restore database and files together from a backup, or open a new study."],
  "updates-lost": ["A stored update is gone", LOST],
  "noised-sum-lost": ["The stored sum is gone", LOST],
  "sum-lost": ["The stored sum is gone", LOST],
  "not-finite": ["The sum of the updates was not a number", "The learning rate may be too large, or a hospital sent overflowing values. Compare the accuracy of the rounds before."],
  "weights-out-of-bounds": ["A weight of the new model was too large", "No hospital trains from weights beyond ±2³⁰. Open a new study with a smaller learning rate."],
  "sum-of-three": ["A hospital refused a sum of three hospitals", "With three, two of them could compute the third's value. Enrol one more hospital, or have every hospital set allow_three in policy.toml."],
  "too-few-drawn": ["Too few hospitals were drawn", "By chance fewer than schedule.min_clients were drawn for this round. The next round draws anew."],
  "same-model-again": ["A hospital refused to sum the same model again", "Without new noise two sums over different hospitals would show one hospital. End the study and open a new one."],
  "too-many-clients": ["More hospitals than a secure sum takes", SETTINGS],
  "unsound-graph": ["No sound ring of neighbours for so many hospitals", SETTINGS],
  "low-threshold": ["The secure sum's threshold would be too low", SETTINGS],
  "low-survivors": ["The secure sum would count on too few hospitals", SETTINGS],
  "unsound-vector": ["A vector does not fit the secure sum", SETTINGS],
  "unordered-deadlines": ["The secure sum's deadlines do not fit", SETTINGS],
  "malformed-parameters": ["The secure sum could not be set up", SETTINGS],
  "unknown-suite": ["The secure sum could not be set up", SETTINGS],
  "refused-by-hospitals": ["Too many hospitals said no", "Operators see who and why below. Talk to them, then ask again or ask something else."],
  "study-finished": ["The study ended before it was asked", "A new study may ask."],
  "budget-exhausted": ["It could have passed a limit", "Others were charged meanwhile. `wardround ask --plan` says what noise would fit."],
  "query-opened": ["Its sum was opened before, and the answer was lost", "Hospitals answer what was opened only once. Ask another question, if only with another noise_multiplier."],
  "max-queries-reached": ["As many queries as statistics.max_queries are charged", "A new study may ask."],
  "repeated-vector": ["The secure sum could not be set up", SETTINGS],
};

export const reasonWords = (reason) => REASONS[reason];

const ROUND_STATES = { collecting: "under way", settled: "charged, model follows", released: "released", abandoned: "came to nothing", stopped: "stopped" };
export const roundState = (round) => ROUND_STATES[round.state] ?? round.state;

// The same question fails again: words say what helps.
const FOR_GOOD = new Set(["query-opened", "study-finished", "max-queries-reached"]);

// [tone, name, sentence]. A failed query that is asked again waits once more.
const QUERY_STATES = {
  waiting: (query) => ["care", "Waits for hospitals", `${query.allowed} of at least ${query.needed} hospitals say yes${query.refused ? `, ${query.refused} no` : ""}.`],
  asked: (query) => ["live", "Hospitals compute", `Round ${query.round} is under way.`],
  answered: () => ["good", "Answered", ""],
  failed: (query) => ["care", "Came to nothing", `${failureWords(query.reason).join(". ")}${FOR_GOOD.has(query.reason) ? "" : " Asking again tries anew."}`],
};
export const queryState = (query) => QUERY_STATES[query.state](query);
const failureWords = (reason) => reasonWords(reason) ?? [`Reason: ${reason}`, ""];
// Without a title what it asks, without which of several rows counts.
export const queryTitle = (query) => query.document.question.title || query.words.split(". ")[0];

const QUERY_KINDS = {
  count: "number of patients", table: "table", tables: "several tables", moments: "means and standard deviations", covariance: "covariances",
  quantiles: "quantiles", survival: "survival", evaluation: "evaluation of a model", "linear-regression": "linear regression",
};
export const kindName = (kind) => QUERY_KINDS[kind] ?? kind;

// Columns of answers; others are the question's own.
const COLUMNS = { estimate: "Estimate", dp_error: "± from noise", sampling_error: "± from sampling", raw: "Before it was made to fit", patients: "Patients" };
export const columnName = (name) => COLUMNS[name] ?? name;

const OBSERVERS = { releases: "whoever sees the released models and answers", coordinator: "the coordinator, which sees who takes part and what they send" };
export const observerName = (observer) => OBSERVERS[observer] ?? observer;

// Against whom a number is void, in its certificate's own words; "" where it holds against everybody it names.
export const voidAgainst = (limit) => limit.certificate?.assumption.match(/does not hold against [^;]*/)?.[0] ?? "";
