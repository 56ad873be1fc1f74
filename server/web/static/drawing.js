// From the JSON of a page to elements. Pure: no request, no clock.
const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const made = name === "svg" || name === "polyline" || name === "title"
    ? document.createElementNS(SVG, name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

// Two decimals, never rounded down: a shown loss must not look smaller than it is.
export function upward(value) {
  if (value === null) return "–";
  const scale = value !== 0 && Math.abs(value) < 0.1 ? 10 ** (1 - Math.floor(Math.log10(Math.abs(value)))) : 100;
  return String(Math.ceil(value * scale) / scale);
}

const row = (cell, ...values) => element("tr", {}, ...values.map((value) => element(cell, {}, value)));
const table = (head, rows) => element("table", {}, element("thead", {}, row("th", ...head)), element("tbody", {}, ...rows));

export function drawStudies(list) {
  const rows = list.studies.map((study) =>
    row("td", element("a", { href: `/dashboard/${study.study}` }, study.study), study.title, state(study), String(study.clients), String(study.rounds)));
  return [element("h1", {}, "Studies"), table(["study", "title", "state", "clients", "rounds"], rows)];
}

export function drawStudy({ study, budget, rounds }) {
  return [
    element("h1", {}, study.title || study.study),
    element("p", {}, `${state(study)} · round ${budget.round} · ${study.clients} clients · at most ${budget.horizon} noised steps`),
    element("p", budget.can_continue ? {} : { class: "bad" }, budget.can_continue ? "The budget allows another round." : "No further round may begin."),
    element("h2", {}, "Privacy budget"),
    ...budget.limits.flatMap(drawLimit),
    element("h2", {}, "Accuracy on the declared evaluation set, outside the guarantee"),
    drawAccuracy(rounds),
    element("h2", {}, "Rounds"),
    table(["round", "state", "measured"], rounds.toReversed().map((one) => row("td", String(one.round), one.reason ? `${one.state}: ${one.reason}` : one.state, measured(one)))),
    element("p", { class: "note" }, `ledger: ${budget.ledger.entries} entries, head ${budget.ledger.head}`),
  ];
}

function state(study) {
  return study.stop_reason ? `${study.state}: ${study.stop_reason}` : study.state;
}

function drawLimit(limit) {
  const name = `${limit.level} level, ${limit.notion}`;
  if (limit.state === "unbounded") return [element("p", {}, `${name}: unbounded. This study does not protect this level.`)];
  const used = limit.spent + limit.reserved;
  const numbers = `ε spent ${upward(limit.spent)}, reserved ${upward(limit.reserved)}, limit ${limit.epsilon} at δ = ${limit.delta}`;
  const bar = element("meter", { min: 0, max: limit.epsilon, high: 0.8 * limit.epsilon, value: Math.min(used, limit.epsilon), "aria-label": numbers });
  return [
    element("p", limit.state === "exhausted" ? { class: "bad" } : {}, element("strong", {}, name), ` · ${numbers} · enforced by ${limit.enforced_by}`),
    bar,
    element("p", { class: "note" }, `holds against ${limit.observer}; ${limit.certificate ? limit.certificate.assumption : "no certificate"}`),
    ...limit.reports.map((report) =>
      element("p", { class: "note" }, `${report.name}: ε = ${upward(report.epsilon)}; ${report.certificate.assumption}`)),
  ];
}

export function accuracies(rounds) {
  return rounds.filter((one) => one.metrics && "accuracy" in one.metrics.values).map((one) => [one.round, one.metrics.values.accuracy]);
}

function drawAccuracy(rounds) {
  const points = accuracies(rounds);
  if (points.length < 2) return element("p", { class: "note" }, "measured in fewer than two rounds");
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const path = points.map(([round, value]) => `${(100 * (round - first)) / (last - first)},${100 * (1 - value)}`).join(" ");
  const words = `accuracy ${points[0][1].toFixed(3)} in round ${first}, ${points[points.length - 1][1].toFixed(3)} in round ${last}`;
  const line = element("polyline", { points: path });
  return element("div", {}, element("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" }, element("title", {}, words), line), element("p", { class: "note" }, words));
}

function measured(one) {
  if (!one.metrics) return "";
  const values = Object.entries(one.metrics.values).map(([name, value]) => `${name} ${value.toFixed(4)}`);
  return `${values.join(", ")} (${one.metrics.evaluation_set})`;
}
