// What each ε means, where it stands: for whom, against whom, and what it rests on.
import { element, redraw, section } from "/static/elements.js";
import { countedOf, guessesOf100, upward } from "/static/numbers.js";
import { limitName, observerName, voidAgainst } from "/static/words.js";

const WHOSE = {
  "instance classical": "whether the record of any one patient was used",
  "instance bayesian": "whether the record of a typical patient of this population was used",
  "client classical": "whether one hospital took part, with all its patients",
  "client bayesian": "whether a hospital that is typical of such hospitals took part",
};

const GUESSERS = { releases: "An attacker who sees all releases", coordinator: "The coordinator, which sees who takes part and what they send," };
const CHANCES = {
  "loss-distribution": "It counts all that the plan may release, whenever the study stops.",
  epsilon: "It is what ε and δ allow.",
};

export function meanings() {
  const list = element("div", { class: "meanings" });
  const node = section("meaning", "What the numbers mean", list);
  const update = (model) => redraw(list, [model.limits, model.unprotected, model.budget.percentiles], () => [
    ...model.limits.map((limit) => meaning(model, limit)), ...model.unprotected.map(noPromise),
  ]);
  return { node, update };
}

function meaning(model, limit) {
  const guess = guessesOf100(limit.attack_success);
  return element("article", {},
    element("h3", {}, limitName(limit)),
    element("p", {}, `${GUESSERS[limit.observer] ?? "An observer"} and who knows all other records and gives equal odds to both, guesses ${WHOSE[`${limit.level} ${limit.definition}`]}. The guess is right at most `, element("strong", {}, `${guess} times in 100`), ` on average. Tossing a coin is right 50 times. ${CHANCES[limit.certificate?.guess_from] ?? ""} On a rare output the attacker may be surer, which ε and δ bound.`),
    voidAgainst(limit) ? element("p", { class: "notice care" }, `This number ${voidAgainst(limit)}.`) : null,
    element("p", {}, spentWords(model, limit)),
    element("dl", { class: "facts" },
      ...fact("Holds against", observerName(limit.observer)), ...fact("Kept by", limit.enforced_by), ...fact("Rests on", limit.certificate?.assumption ?? "no certificate yet"),
      ...numbersBeside(model, limit)));
}

// ε so far, or tighter numbers, each with what it rests on.
function numbersBeside(model, limit) {
  const { running } = model.wordsOf(limit);
  if (countedOf(limit) !== null) return running === null ? [] : fact("So far, under a condition", running);
  return limit.reports.flatMap((report) => fact("Tighter number, not acted on", `ε = ${upward(report.epsilon)} (${report.name}), ${report.certificate.assumption}`));
}

function spentWords(model, limit) {
  const { guarantee, progress } = model.wordsOf(limit);
  if (countedOf(limit) !== null) return `Guaranteed: ${guarantee}. So far: ${progress}. What a round or question takes is reserved before it begins.`;
  return `Spent so far: ε ${upward(limit.spent)} at δ = ${limit.delta}. It is never more than ε ${limit.epsilon}. Each round's worst case is reserved before it begins.`;
}

const fact = (name, text) => [element("dt", {}, name), element("dd", {}, text)];

function noPromise(limit) {
  return element("article", {}, element("h3", {}, limitName(limit)), element("p", {}, "No promise: this study does not protect this level, and its ε is unbounded."));
}
