// From the JSON of a page to elements. Pure: no request, no clock.
const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "polyline", "line", "text", "title"]);

export function element(name, attributes = {}, ...children) {
  const made = SVG_NAMES.has(name)
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
  const head = [
    element("p", { class: "note" }, element("a", { href: "/dashboard" }, "all studies")),
    element("h1", {}, study.title || study.study),
  ];
  // No numbers where the database is not what was signed: they may be anybody's.
  if (budget === null) return [...head, element("p", {}, state(study)), element("p", { class: "bad" }, DATABASE_DIFFERS)];
  const limited = budget.limits.filter((limit) => limit.epsilon !== null);
  return [
    ...head,
    element("p", {}, `${state(study)} · round ${budget.round} · ${study.clients} clients · at most ${budget.max_steps} noised steps`),
    element("p", budget.can_continue ? {} : { class: "bad" }, budget.can_continue ? "The budget allows another round." : "No further round may begin."),
    element("h2", {}, "Privacy budget"),
    ...budget.limits.flatMap(drawLimit),
    element("h2", {}, "Spent after each round"),
    drawChart("ε", limited.map((limit) => history(rounds, limit)), Math.max(...limited.map((limit) => limit.epsilon)), upward),
    element("h2", {}, "Accuracy on the declared evaluation set, outside the guarantee"),
    drawChart("accuracy", [{ name: "accuracy", points: accuracies(rounds) }], 1, (value) => value.toFixed(3)),
    element("h2", {}, "Rounds"),
    drawRounds(rounds, limited),
    element("p", { class: "note long" }, `ledger: ${budget.ledger.entries} entries, head ${budget.ledger.head}`),
  ];
}

const DATABASE_DIFFERS =
  "Somebody changed the database without the coordinator's key: what stands here may be theirs. Keep a copy of the database, " +
  "find out who did it, and restore database and files together from a backup, or open a new study.";

function state(study) {
  return study.stop_reason ? `${study.state}: ${study.stop_reason}` : study.state;
}

function drawLimit(limit) {
  const name = `${limit.level} level, ${limit.definition}`;
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

// (round, ε) of one limit, with the limit itself as a dashed line.
function history(rounds, limit) {
  const points = rounds.map((one) => [one.round, spentOf(one, limit)]).filter(([, spent]) => spent !== undefined);
  return { name: `${limit.level}, ${limit.definition}`, points, limit: limit.epsilon };
}

const spentOf = (one, limit) => one.spent?.find((each) => each.level === limit.level && each.definition === limit.definition)?.spent;

// Lines over the rounds on one scale from 0 to `top`. Each line is named in words below: nothing hangs on its colour.
function drawChart(what, lines, top, shown) {
  const drawn = lines.filter((line) => line.points.length > 1);
  if (drawn.length === 0) return element("p", { class: "note" }, "known of fewer than two rounds");
  const [first, last] = [Math.min(...drawn.map((line) => line.points[0][0])), Math.max(...drawn.map((line) => line.points.at(-1)[0]))];
  const x = (round) => 40 + (550 * (round - first)) / (last - first);
  const y = (value) => 10 + 160 * (1 - value / top);
  const words = drawn.map(({ name, points }) => `${name}: ${shown(points[0][1])} in round ${points[0][0]}, ${shown(points.at(-1)[1])} in round ${points.at(-1)[0]}`);
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
    element("line", { class: "grid", x1: 40, x2: 590, y1: y(share * top), y2: y(share * top) }),
    element("text", { x: 34, y: y(share * top) + 4, "text-anchor": "end" }, String(Math.round(100 * share * top) / 100)),
  ]);
  const marks = drawn.flatMap(({ points, limit }, number) => [
    ...(limit ? [element("line", { class: `limit line-${number}`, x1: 40, x2: 590, y1: y(limit), y2: y(limit) })] : []),
    element("polyline", { class: `line-${number}`, points: points.map(([round, value]) => `${x(round)},${y(Math.min(value, top))}`).join(" ") }),
  ]);
  const ends = [[first, "start"], [last, "end"]].map(([round, anchor]) => element("text", { x: x(round), y: 188, "text-anchor": anchor }, `round ${round}`));
  const picture = element("svg", { viewBox: "0 0 600 192", role: "img" }, element("title", {}, `${what} over the rounds`), ...grid, ...marks, ...ends);
  return element("div", {}, picture, ...words.map((text, number) => element("p", { class: `note key line-${number}` }, text)));
}

function drawRounds(rounds, limited) {
  const sets = [...new Set(rounds.filter((one) => one.metrics).map((one) => one.metrics.evaluation_set))].join("; ");
  const lines = rounds.toReversed().map((one) =>
    row("td", String(one.round), one.reason ? `${one.state}: ${one.reason}` : one.state, ...limited.map((limit) => upward(spentOf(one, limit) ?? null)), measured(one)));
  const head = ["round", "state", ...limited.map((limit) => `ε ${limit.level}, ${limit.definition}`), sets ? `measured on ${sets}` : "measured"];
  return element("div", { class: "wide" }, table(head, lines));
}

function measured(one) {
  return Object.entries(one.metrics?.values ?? {}).map(([name, value]) => `${name} ${value.toFixed(4)}`).join(", ");
}
