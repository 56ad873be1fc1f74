// The overview: rounds left and shares first, then ε.
import { element, phrase, redraw } from "/static/elements.js";
import { keyOf } from "/static/model.js";
import { accuracy, count, countedOf, guessesOf100, number, partOf, percentLeft, upward } from "/static/numbers.js";
import { hospitals } from "/static/overview.js";
import { limitName, voidAgainst } from "/static/words.js";

export function cards() {
  const node = element("div", { class: "cards" });
  const update = (model) => {
    if (model.budget === null) return redraw(node, null, () => []);
    const drawn = [model.trains ? roundsLeft(model) : null, model.asks ? questions(model) : null, ...model.limits.map((limit) => (countedOf(limit) === null ? budgetLeft(limit) : guarantee(model, limit))), model.trains ? measured(model) : null, present(model)].filter(Boolean);
    redraw(node, drawn, () => drawn.map(card));
  };
  return { node, update };
}

// A card is words only, so that it is drawn again when they change.
function card({ name, figure, bar, lines, tone }) {
  return element("article", { class: `card ${tone ?? ""}` },
    element("h2", {}, name), element("p", { class: "figure" }, figure), bar ? meter(bar) : null,
    ...lines.filter(Boolean).map((line) => element("p", { class: "note" }, ...phrase(line))));
}

// Full is all of the budget; what is spent empties it from the right, as the share above it says.
function meter({ left, reserved, words }) {
  const bar = element("div", { class: "bar", role: "img", "aria-label": words }, element("span", { class: "free" }), element("span", { class: "reserved" }));
  // Through the object model: an attribute would be an inline style, which the policy forbids.
  bar.children[0].style.width = `${left}%`;
  bar.children[1].style.width = `${reserved}%`;
  return bar;
}

function roundsLeft(model) {
  const begun = `${count(model.study.rounds, "round")} begun, at most ${number(model.mostRounds)} of training are charged`;
  if (model.study.stop_reason !== null) return { name: "Rounds left", figure: "none", lines: ["The study has ended.", begun] };
  if (!model.goesOn) return { name: "Rounds left", figure: "none", lines: ["No further round may begin.", begun] };
  if (model.asks && model.roundsLeft === 0) return { name: "Rounds left", figure: "none", lines: ["Training is done. Questions may follow.", begun] };
  const first = model.tightest;
  return {
    name: "Rounds left",
    figure: `${model.study.rounds ? "about" : "at least"} ${number(model.roundsLeft)}`,
    lines: [
      first ? `The limit for ${limitName(first)} ends the study first` : null,
      model.study.rounds ? "If further rounds cost as much as the last one" : "If every round costs its worst case",
      begun,
    ],
  };
}

function questions(model) {
  const counted = (state) => model.queries.filter((query) => query.state === state).length;
  const others = [["waiting", "waits for hospitals", "wait for hospitals"], ["asked", "is being computed", "are being computed"], ["failed", "failed", "failed"]];
  return {
    name: "Questions answered",
    figure: String(counted("answered")),
    lines: [
      ...others.map(([state, one, many]) => (counted(state) ? `${counted(state)} ${counted(state) === 1 ? one : many}` : null)),
      `At most ${model.study.settings.statistics.max_queries} are charged`,
    ],
  };
}

function budgetLeft(limit) {
  const left = percentLeft(limit);
  const reserved = limit.reserved > 0 ? `, ${upward(limit.reserved)} reserved for the round under way` : "";
  const words = `ε ${upward(limit.spent)} of ${limit.epsilon} spent${reserved}`;
  return {
    id: keyOf(limit),
    name: `Budget left: ${limitName(limit)}`,
    figure: `${left} %`,
    bar: { left, reserved: (100 * limit.reserved) / limit.epsilon, words },
    lines: [words, ...limit.reports.map((report) => `Tighter, not acted on: ε ${upward(report.epsilon)} (${report.name})`), ...about(limit)],
  };
}

// What holds in any case stands first, and ε so far never without its condition.
function guarantee(model, limit) {
  const { guarantee, progress, running } = model.wordsOf(limit), part = partOf(limit);
  return {
    id: keyOf(limit),
    name: `Guarantee: ${limitName(limit)}`,
    figure: limit.spent > 0 ? guarantee.split(" at δ")[0] : `ε ≤ ${limit.epsilon}`,
    bar: { left: percentLeft(limit), reserved: (100 * part.reserved) / part.allowed, words: progress },
    lines: [guarantee, sentence(progress), running, ...about(limit)],
  };
}

const about = (limit) => [
  `An attacker who knows all other records guesses right at most ${guessesOf100(limit.attack_success)} times in 100 on average (a coin: 50)`,
  sentence(voidAgainst(limit)).split(",")[0],
];

const sentence = (words) => words && `${words[0].toUpperCase()}${words.slice(1)}`;

function measured(model) {
  const last = model.measured.at(-1), first = model.measured[0];
  if (!last) return { name: "Accuracy", figure: "–", lines: ["No model has been measured yet. `wardround evaluate --watch` measures released models."] };
  const change = first === last ? null : `Round ${first.round}: ${accuracy(first.metrics.values.accuracy)}`;
  return {
    name: "Accuracy", figure: accuracy(last.metrics.values.accuracy),
    lines: [`Model of round ${last.round}, on “${last.metrics.evaluation_set}”: declared, outside the guarantee`, change],
  };
}

function present(model) {
  const latest = model.rounds.findLast((round) => round.answers !== null && Object.values(round.answers).some(Boolean));
  const figure = latest ? `${latest.answers.received} of ${Object.values(latest.answers).reduce((sum, some) => sum + some)}` : String(model.study.clients);
  const what = !latest ? "take part" : model.underWay === latest ? `have answered in round ${latest.round} so far` : `answered in round ${latest.round}`;
  const hidden = model.rounds.some((round) => round.answers === null);
  return { name: "Hospitals", figure, lines: [what, `${hospitals(model.study)} enrolled`, hidden ? "How many are drawn in a round is not shown: the guarantee counts on it" : null] };
}
