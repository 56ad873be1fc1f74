// What each ε means, where it stands: for whom, against whom, and what it rests on.
import { element, redraw, section } from "/static/elements.js";
import { guessesOf100, upward } from "/static/numbers.js";
import { limitName, observerName, voidAgainst } from "/static/words.js";

const WHOSE = {
  "instance classical": "whether one patient's record was used, whoever the patient is and whatever the attacker knows besides",
  "instance bayesian": "whether a patient who is typical of this population was used",
  "client classical": "whether one hospital took part, with all its patients",
  "client bayesian": "whether a hospital that is typical of such hospitals took part",
};

const GUESSERS = { releases: "Somebody who sees what is released", coordinator: "The coordinator, which sees who takes part and what they send," };

export function meanings() {
  const list = element("div", { class: "meanings" });
  const node = section("meaning", "What the numbers mean", list);
  const update = (model) => redraw(list, [model.limits, model.unprotected, model.budget.percentiles], () => [
    ...model.limits.map(meaning), ...model.unprotected.map(noPromise),
  ]);
  return { node, update };
}

function meaning(limit) {
  const guess = guessesOf100(limit.attack_success);
  return element("article", {},
    element("h3", {}, limitName(limit)),
    element("p", {}, `${GUESSERS[limit.observer] ?? "Somebody"} guesses ${WHOSE[`${limit.level} ${limit.definition}`]}, even odds beforehand. The guess is right at most `, element("strong", {}, `${guess} times in 100`), ". Tossing a coin is right 50 times."),
    voidAgainst(limit) ? element("p", { class: "notice care" }, `This number ${voidAgainst(limit)}.`) : null,
    element("p", {}, `Spent so far: ε ${upward(limit.spent)} at δ = ${limit.delta}. It is never more than ε ${limit.epsilon}. Each round's worst case is reserved before it begins.`),
    element("dl", { class: "facts" },
      ...fact("Holds against", observerName(limit.observer)), ...fact("Kept by", limit.enforced_by), ...fact("Rests on", limit.certificate?.assumption ?? "no certificate yet"),
      ...limit.reports.flatMap((report) => fact("Tighter number, not acted on", `ε = ${upward(report.epsilon)} (${report.name}); ${report.certificate.assumption}`))));
}

const fact = (name, text) => [element("dt", {}, name), element("dd", {}, text)];

function noPromise(limit) {
  return element("article", {}, element("h3", {}, limitName(limit)), element("p", {}, "No promise: this study does not protect this level, and its ε is unbounded."));
}
