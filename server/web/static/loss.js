// The charts with their choices, each with the same numbers as a table.
import { accuracyRows, answerRows, lossRows, MOST_BARS } from "/static/chart_data.js";
import { Chart, chartsAreHere } from "/static/charts.js";
import { element, redraw, section, table } from "/static/elements.js";
import { placeOf, spentOf } from "/static/model.js";
import { accuracy, upward } from "/static/numbers.js";
import { limitName, LINES } from "/static/words.js";

const SPANS = { 0: "All rounds", 100: "The newest 100", 25: "The newest 25" };
const ANSWERS = ["answered", "refused", "missing", "not yet"];
const MISSING = "This coordinator has no charts, because the package vl-convert-python is not installed. The operator installs it and restarts the coordinator. The tables show the same numbers.";

export function lossCharts() {
  const choice = { share: false, hidden: new Set(), last: 0 };
  const loss = figure("/static/charts/loss.json", "Privacy loss ε by round, for every limit, with the limits, the reservation and a forecast", lossTable);
  const measured = figure("/static/charts/accuracy.json", "Accuracy of the released models by round", accuracyTable);
  const answers = figure("/static/charts/answers.json", "How many hospitals answered in each round", answersTable);
  const legend = element("fieldset", { class: "legend" });
  const [jump, about, few] = [1, 2, 3].map(() => element("p", { class: "note" }));
  let model = null;
  const draw = () => loss.update(model, () => lossRows(model, choice));
  const accuracies = section("accuracy", "Accuracy", measured.node);
  const beside = element("div", { class: "beside" }, accuracies, section("participation", "Hospitals that answered", answerKey(), answers.node, few));
  const node = section("loss", "Privacy loss, round by round",
    chartsAreHere ? element("div", { class: "controls" }, ...choices(choice, draw), legend) : element("p", { class: "notice care" }, MISSING),
    loss.node, chartsAreHere ? about : null, jump, beside);
  const update = (now) => {
    model = now;
    accuracies.hidden = !model.trains;
    const counted = model.limits.some((limit) => limit.progress) ? " A limit that is kept by counting has one ε from its first charge on: “Share of each limit” shows how much of it is used. Diamond: ε so far, under its condition." : "";
    about.textContent = (model.trains ? `Strong lines: spent. Fine dots: a forecast, if every further round costs as much as the last one. A thick stroke: reserved for the round under way.${model.asks ? " Questions are rounds, too." : ""}` : "Every question is a round. Strong lines: the ε that holds for every stop, which is the limit from the first question on. Each question shows how much of it is used.") + counted;
    redraw(legend, model.limits.map((limit) => [limitName(limit), limit.epsilon]), () => legendOf(model.limits, choice, draw));
    redraw(jump, jumpWords(model), () => jumpWords(model));
    draw();
    measured.update(model, () => accuracyRows(model));
    answers.update(model, () => answerRows(model));
    few.textContent = model.rounds.length > MOST_BARS ? `The newest ${MOST_BARS} rounds. The table “Rounds” has all.` : "";
  };
  return { node, update };
}

function choices(choice, draw) {
  const select = (name, options, change) => element("label", { class: "choice" }, `${name} `, element("select", { onchange: (event) => { change(event.target.value); draw(); } },
    ...Object.entries(options).map(([value, text]) => element("option", { value }, text))));
  return [
    select("Show", { epsilon: "ε", share: "Share of each limit, in %" }, (value) => { choice.share = value === "share"; }),
    select("Rounds", SPANS, (value) => { choice.last = Number(value); }),
  ];
}

function legendOf(limits, choice, draw) {
  const toggle = (name) => (event) => {
    choice.hidden[event.target.checked ? "delete" : "add"](name);
    draw();
  };
  return [element("legend", {}, "Limits"), ...limits.map((limit) => element("label", { class: `key line-${LINES.indexOf(limitName(limit)) + 1}` },
    element("input", { type: "checkbox", checked: true, onchange: toggle(limitName(limit)) }), ` ${limitName(limit)}: ε ${limit.epsilon}`))];
}

const answerKey = () => element("p", { class: "legend" }, ...ANSWERS.map((name, number) => element("span", { class: `key bars line-${number + 1}` }, name)));

// The first round pays what a fixed order costs once; without a word it looks like a mistake.
function jumpWords(model) {
  // Without training nothing is kept at one order; a question may cost whatever its noise says.
  if (!model.trains || model.rounds.some((round) => round.query)) return "";
  for (const limit of model.limits.filter((limit) => !limit.progress)) {
    const points = model.history(limit);
    if (points.length < 3) continue;
    const [first, later] = [points[0][1], (points.at(-1)[1] - points[0][1]) / (points.length - 1)];
    if (first > 2 * later) return `Why the first round costs more: the limit for ${limitName(limit)} is read at one order, fixed before the study. That order has a fixed cost, which the first round pays: ε ${upward(first)}. Each later round costs about ε ${upward(later)}.`;
  }
  return "";
}

// A chart, and under it the same rows as a table that is made when somebody opens it.
function figure(specification, words, makeTable) {
  const picture = element("div", {}), nothing = element("p", { class: "empty" });
  const inside = element("div", {});
  const details = element("details", { open: !chartsAreHere }, element("summary", {}, "The same numbers as a table"), inside);
  const chart = chartsAreHere ? new Chart(picture, specification, words) : null;
  let model = null;
  const drawTable = () => details.open && model && redraw(inside, [model.version, model.study.rounds], () => makeTable(model));
  details.addEventListener("toggle", drawTable);
  const update = (now, rows) => {
    model = now;
    const found = rows();
    const empty = Object.entries(found).every(([name, data]) => name === "limits" || data.length === 0);
    nothing.textContent = empty ? "Nothing to draw yet." : "";
    picture.hidden = details.hidden = empty;
    if (!empty) chart?.show(found);
    drawTable();
  };
  return { node: element("figure", {}, picture, nothing, details), update };
}

function lossTable(model) {
  const rows = model.rounds.filter((round) => round.spent !== null).toReversed().map((round) => {
    const spent = model.limits.map((limit) => [upward(spentOf(round, limit)), placeOf(model, round, limit)].filter(Boolean).join(", "));
    return [`after round ${round.round}`, ...spent];
  });
  const reserved = model.underWay ? [[`reserved for round ${model.underWay.round}`, ...model.limits.map((limit) => limit.progress?.steps ? `step ${limit.progress.steps.used + limit.progress.steps.reserved}` : `+ ${upward(limit.reserved)}`)]] : [];
  const limits = [["limit", ...model.limits.map((limit) => String(limit.epsilon))]];
  const left = model.roundsLeft ? [["rounds left, about", ...model.limits.map((limit) => String(limit.rounds_left_estimate))]] : [];
  return table("ε by round", ["", ...model.limits.map((limit) => `ε, ${limitName(limit)}`)], [...limits, ...left, ...reserved, ...rows]);
}

const accuracyTable = (model) => table("Accuracy by round", ["round", "accuracy"], model.measured.toReversed().map((round) => [String(round.round), accuracy(round.metrics.values.accuracy)]));

function answersTable(model) {
  const rows = model.rounds.filter((round) => round.answers !== null).slice(-MOST_BARS).toReversed();
  return table("Hospitals by round", ["round", ...ANSWERS], rows.map(({ round, answers }) => [round, answers.received, answers.refused, answers.missing, answers.waiting].map(String)));
}
