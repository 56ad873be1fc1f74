// For whom the Bayesian number does not speak: the certificate's numbers by hospital, without names.
import { ask } from "/static/coordinator.js";
import { cell, element, redraw, section, table } from "/static/elements.js";
import { number, upward } from "/static/numbers.js";
import { picture } from "/static/question.js";

export function byHospital(name) {
  const shown = element("div", {}), node = section("by-hospital", "For whom the Bayesian number does not speak", shown);
  node.hidden = true;
  let read = null;
  const update = async (model) => {
    const answered = model.queries.findLast((query) => query.document.question.kind === "distances" && query.state === "answered");
    // Later rounds change the numbers: they count at their worst.
    const stamp = answered ? `${answered.number} ${model.budget.ledger.head}` : null;
    if (stamp === read) return;
    read = stamp;
    try {
      const { certificate } = await (await ask(`/v1/studies/${name}/certificate`)).json();
      node.hidden = !certificate.distances;
      if (certificate.distances) redraw(shown, certificate.distances, () => drawn(certificate.distances));
    } catch (error) {
      read = null;
      node.hidden = false;
      redraw(shown, error.message, () => element("p", { class: "notice care" }, error.message));
    }
  };
  return { node, update };
}

function drawn(found) {
  const named = [["all hospitals", found.pooled], ...found.hospitals.map((one, place) => [`hospital ${place + 1}`, one])];
  const plot = { kind: "bars", x: "whose", y: "ε", low: "low", high: "high", by: null, panel: null };
  const rows = named.map(([whose, one]) => [whose, one.estimate, one.estimate_low, one.estimate_high]);
  const lines = named.map(([whose, one]) => [whose, ...[
    `at most ${upward(one.epsilon)}`, one.estimate === null ? "–" : one.estimate.toFixed(2), `${one.estimate_low.toFixed(2)} to ${one.estimate_high.toFixed(2)}`,
    number(Math.max(0, Math.round(one.counts.reduce((sum, count) => sum + count)))), `${percent(one.clipped_low)} to ${percent(one.clipped_high)}`,
  ].map((text) => cell({ class: "number" }, text))]);
  return [
    ...found.words.map((line) => element("p", {}, line)),
    picture({ title: "Estimated ε by hospital", columns: ["whose", "ε", "low", "high"], rows, plot }),
    table("ε by hospital, the least favourable bound first", ["Patients of", "Bound", "Estimate, no guarantee", "95 % interval", "Patients, noised", "Clipped in nearly every step"], lines),
    element("p", { class: "note" }, "The counts with their hospitals' names: ", element("a", { href: `#question-${found.query}` }, `question ${found.query}`), "."),
  ].filter(Boolean);
}

const percent = (share) => `${Math.round(100 * share)} %`;
