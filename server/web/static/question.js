// One question: what was asked, who consents, what it cost, and its answer with pictures.
import { NOT_CHARGED } from "/reasons.js";
import { csvOf, endsOf, formOf, panelled, plotted } from "/static/answer_rows.js";
import { Chart, chartsAreHere } from "/static/charts.js";
import { cell, element, phrase, redraw, save, section, table } from "/static/elements.js";
import { Broken, checkAnswer, fingerprint } from "/static/ledger.js";
import { count, estimate, shareWords, upward, when } from "/static/numbers.js";
import { columnName, kindName, limitName, queryState, queryTitle } from "/static/words.js";

// More rows are shown when somebody opens them.
const MOST_ROWS = 24;
// Places on a scale that are all named under it.
const MOST_TICKS = 5;
// Drawings of one table, each of one hospital.
const MOST_PANELS = 24;
// Letters of one line of a row's name in a chart, its lines at most, and the height of a line and of what is around them.
const LINE = 22, MOST_LINES = 3, LINE_HEIGHT = 14, AROUND = 6;
// The lines of a row's name. A longer one loses its middle: names of many groups differ in their ends.
export function wrapped(name) {
  const lines = [];
  for (const word of name.split(" ")) {
    if (lines.length > 0 && `${lines.at(-1)} ${word}`.length <= LINE) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines.length <= MOST_LINES ? lines : [`${lines[0]} …`, ...lines.slice(1 - MOST_LINES)];
}

export function questionView(name) {
  const node = element("div", {});
  // isKnown: whether the study has a question of this number, so that it is on its way.
  const update = (model, query, isKnown) => {
    const costs = query && model.limits.map((limit) => [limitName(limit), model.spentBy(query, limit), shareWords(query, limit), Boolean(limit.progress)]);
    redraw(node, [query, costs, isKnown], () => {
      if (query === null) return missing(isKnown);
      const answer = query.signed === null ? null : JSON.parse(query.signed);
      return [about(model, query, costs), ...(answer === null ? [] : [results(name, query, answer), certificate(model, query, answer)])];
    });
  };
  return { node, update };
}

const back = () => element("p", { class: "crumbs" }, element("a", { href: "#questions" }, "All questions"));

const missing = (isKnown) => section("question", "Question", back(), element("p", { class: "empty" }, isKnown ? "Loading the question …" : "This study has no question of this number."));

function about(model, query, costs) {
  const [tone, state, sentence] = queryState(query), { question, data_version: version } = query.document;
  const facts = [
    ["Kind", kindName(question.kind)],
    ["Asked", when(query.created_at)],
    ["About", version === "1" ? "the records as they were then" : `records of version ${version}`],
    ["Noise", `${Number(question.noise_multiplier.toPrecision(4))} times what one patient can change`],
    ...costs.map(([limit, spent, share, counted]) => [`Cost, ${limit}`, spent === null ? NOT_CHARGED : share !== null ? share : counted ? "by patients who are set aside" : `ε ${upward(spent[0])} before, ${upward(spent[1])} after: + ${upward(spent[1] - spent[0])}`]),
    query.state === "answered" ? null : ["Consent", `${query.allowed} yes, ${query.refused} no, at least ${query.needed} must say yes`],
  ].filter(Boolean);
  return section("question", `${query.number}. ${queryTitle(query)}`, back(),
    element("p", {}, element("span", { class: `badge ${tone}` }, state)),
    sentence ? element("p", { class: `notice ${tone}` }, ...phrase(sentence)) : null,
    element("p", {}, query.words),
    query.place ? stepsOf(query.place) : null,
    element("dl", { class: "facts" }, ...facts.flatMap(([about, text]) => [element("dt", {}, about), element("dd", {}, text)])),
    consents(query));
}

// One question in steps: where this one stands, and what it followed from or led to.
const stepsOf = ({ words, step, first, next }) => element("p", {}, words, " ",
  step > 1 ? element("a", { href: `#question-${first}` }, "The first step") : null, step > 1 && next ? ", " : null,
  next ? element("a", { href: `#question-${next}` }, "The next step") : null);

// Who said what is for leads and auditors; a hospital sees its own word.
function consents(query) {
  if (query.consents === null) return query.state === "answered" ? null : element("p", { class: "note" }, "Which hospital said what is shown to leads and auditors.");
  if (query.consents.length === 0) return element("p", { class: "note" }, "No hospital has answered yet.");
  const rows = query.consents.map(({ client, consent }) => [client, cell({}, consent.allowed ? "yes" : "no"), cell({}, consent.detail || consent.code)]);
  const list = table("What hospitals said", ["Hospital", "Says", "Why"], rows);
  return query.state === "answered" ? element("details", {}, element("summary", {}, "What hospitals said"), list) : list;
}

function results(name, query, { answer, warning }) {
  return section("answer", "Answer", element("div", { id: "answer-forged" }),
    ...answer.notes.map((note) => element("p", { class: "note" }, note)),
    ...answer.tables.map((one) => result(name, query, one)),
    element("p", { class: "notice" }, warning));
}

function result(name, query, one) {
  const rows = shownRows(one, one.name === "median" ? noMedian(query.document.question) : null), caption = `${one.title}, ${count(one.rows.length, "row")}`;
  const list = table(caption, rows.head, rows.lines);
  return element("article", { class: "result" },
    element("h3", {}, one.title),
    picture(one),
    one.rows.length === 0 ? element("p", { class: "empty" }, one.name === "findings" ? "No hospital stands out." : "No row is shown: each counts fewer patients than the study shows.")
      : one.rows.length > MOST_ROWS ? element("details", {}, element("summary", {}, `All ${one.rows.length} rows`), list) : list,
    element("p", {}, element("button", { type: "button", class: "plain", onclick: () => save(`${name}-${query.number}-${one.name}.csv`, new Blob([csvOf(one)], { type: "text/csv" })) }, `Download “${one.title}” as CSV`)));
}

// A median that no half has reached, or that too few patients were followed for: then its interval begins with them.
const noMedian = ({ time }) => (low) => (low > time.edges[0] ? "not reached" : "not known");

function range(low, high) {
  if (low === null) return high === null ? "–" : `at most ${estimate(high)}`;
  return high === null ? `${estimate(low)} or more` : `${estimate(low)} to ${estimate(high)}`;
}

// Low and high as one column; the others as they are, the question's own first.
// unknown: what stands for an estimate that is not there, from the low end of its interval.
function shownRows({ columns, rows }, unknown) {
  const place = Object.fromEntries(columns.map((column, number) => [column, number]));
  const hasInterval = "low" in place && "high" in place;
  const kept = [...columns.filter((column) => column !== "raw" && !(hasInterval && (column === "low" || column === "high"))), ...(columns.includes("raw") ? ["raw"] : [])];
  const at = kept.indexOf("estimate") + 1;
  const head = kept.map(columnName);
  const said = (row, column) => (column === "estimate" && row[place.estimate] === null ? (unknown?.(row[place.low]) ?? "–") : estimate(row[place[column]]));
  const made = (row) => kept.map((column) => (typeof row[place[column]] === "number" || row[place[column]] === null ? cell({ class: "number" }, said(row, column)) : row[place[column]]));
  const between = (row) => cell({ class: "number" }, range(row[place.low], row[place.high]));
  if (hasInterval) head.splice(at, 0, "95 % interval");
  const lines = rows.map((row) => (hasInterval ? made(row).toSpliced(at, 0, between(row)) : made(row)));
  // A row needs a name of its own: what a screen reader says first.
  return typeof rows[0]?.[0] === "string" ? { head, lines } : { head: ["", ...head], lines: lines.map((line, number) => [lines.length === 1 ? "all" : String(number + 1), ...line]) };
}

export function picture(one) {
  if (one.plot === null || one.rows.length === 0 || !chartsAreHere) return null;
  return one.plot.panel ? panels(one) : drawing(one);
}

// Small drawings beside each other on one scale. A hospital without an answer has a place that says so.
function panels(one) {
  const all = panelled(one), ends = endsOf(one);
  if (ends === null) return null;
  const drawn = all.slice(0, MOST_PANELS).map(({ name, table: own }) => element("div", { class: "panel" }, element("h4", {}, name), drawing(own, { name, ends }) ?? element("p", { class: "empty" }, "no answer")));
  const left = all.length - drawn.length;
  return element("div", {}, element("div", { class: "panels" }, ...drawn), left > 0 ? element("p", { class: "note" }, `${left} more hospitals are in the table alone.`) : null);
}

// name, ends: of a drawing among others: whose it is, and the scale that all share
function drawing(one, { name = "", ends = null } = {}) {
  const { rows, left, numeric, beside, scale } = plotted(one);
  if (rows.length === 0) return null;
  const place = element("div", {}), whose = name ? `, ${name}` : "";
  const chart = new Chart(place, `/static/charts/question-${formOf(one)}.json`, `${one.title}${whose}: ${columnName(one.plot.y)} by ${one.plot.x} with 95 % intervals. The table below has the same numbers`, (plain) => fitted(plain, one, rows, { numeric, beside, scale, ends }));
  chart.show({ rows });
  return element("figure", {}, place, left > 0 ? element("p", { class: "note" }, `${left} more rows are in the table alone.`) : null);
}

// A forest plot: effects beside the line of no effect, ratios by their logarithms.
function forest(plain, { scale, reference }) {
  if (scale) for (const { encoding } of plain.layer) encoding.x.scale = { type: scale, nice: false, padding: 12 };
  if (typeof reference === "number") plain.layer.unshift({ data: { values: [{}] }, mark: { type: "rule", strokeDash: [4, 4] }, encoding: { x: { datum: reference, type: "quantitative" }, y: { value: 0 }, y2: { value: { expr: "height" } }, yOffset: null, color: null, tooltip: null } });
}

// The line that points over a scale are held against.
const level = (reference) => ({ data: { values: [{}] }, mark: { type: "rule", strokeDash: [4, 4] }, encoding: { y: { datum: reference, type: "quantitative" }, x: { value: 0 }, x2: { value: { expr: "width" } } } });

const share = (axis, domain) => axis && (axis.scale = { ...axis.scale, domain, nice: true });

// What only the data know: the axis' name and form, and whether there are groups at all.
function fitted(plain, one, rows, { numeric, beside, scale, ends }) {
  const { encoding } = plain;
  if (ends !== null) for (const { encoding: own } of plain.layer) share(own[scale ? "y" : "x"], ends);
  if (scale) {
    encoding.x.title = one.plot.x;
    const places = [...new Set(rows.map((row) => row.x))];
    if (!numeric) Object.assign(encoding.x, { type: "ordinal", scale: {} });
    else if (places.length <= MOST_TICKS) encoding.x.axis = { ...encoding.x.axis, values: places, format: ".6~g" };
    if (typeof one.plot.reference === "number") plain.layer.unshift(level(one.plot.reference));
  } else {
    // A height in steps, as the file says it, would make the library warn beside a width of the container's.
    const distinct = (name) => new Set(rows.map((row) => row[name])).size;
    const lines = Object.fromEntries(rows.map((row) => [row.x, wrapped(row.x)]));
    const step = Math.max(plain.height.step, Math.max(...Object.values(lines).map((name) => name.length)) * LINE_HEIGHT + AROUND);
    plain.height = step * distinct("x") * (beside ? distinct("by") : 1);
    if (!beside) delete encoding.yOffset;
    forest(plain, one.plot);
    Object.assign(encoding.y.axis, { labelOverlap: false, labelExpr: `(${JSON.stringify(lines)})[datum.label]` });
  }
  // Where each row says which group it belongs to, its colour need not.
  const isNamed = one.plot.by !== null && (scale || beside);
  const marks = [plain, ...plain.layer].flatMap(({ encoding: own = {} }) => [own.color, own.strokeDash, own.shape]).filter(Boolean);
  for (const mark of marks.filter((each) => each.legend)) isNamed ? (mark.legend.title = one.plot.by) : (mark.legend = null);
  return plain;
}

function certificate(model, query, answer) {
  const signed = element("dd", {}, "checking …");
  checked(query, model.study.coordinator_key).then((words) => signed.replaceChildren(words));
  const facts = [
    ["Hospitals in the sum", String(answer.hospitals)],
    ["Guaranteed noise", `standard deviation ${estimate(answer.noise.guaranteed)} on every number of the sum`],
    ["Actual noise", `standard deviation ${estimate(answer.noise.present)}, used for errors and intervals`],
    ["Charged", `in round ${answer.round}, ledger entry ${answer.ledger_entries}`],
    ["Hash of that entry", answer.ledger_sha256],
  ];
  return section("answer-proof", "Basis of this answer",
    element("dl", { class: "facts" }, ...facts.flatMap(([about, text]) => [element("dt", {}, about), element("dd", { class: "long" }, text)]), element("dt", {}, "Signature"), signed),
    element("p", { class: "note" }, ...phrase("This page came from the coordinator itself. `wardround ask --coordinator-key FINGERPRINT` with the same question, and `client.ask` in Python, verify the signature on your own machine with a key that you know.")));
}

async function checked({ answered, signed }, key) {
  if (!globalThis.crypto?.subtle) return "not checked: this browser checks signatures only on pages that were opened over https";
  try {
    if ((await checkAnswer(signed, answered.signature, key)) === null) return "not checked: this browser does not support Ed25519";
    return `this browser has verified it with the key that the coordinator shows, fingerprint ${await fingerprint(key)}`;
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    const words = `${error.message} Do not rely on these numbers.`;
    // Above the numbers, too: nobody reads on to the end.
    document.getElementById("answer-forged")?.replaceChildren(element("p", { class: "notice bad", role: "alert" }, words));
    return words;
  }
}
