// The released model on later patients: the control chart of its windows, with the alarms in words.
import { cell, element, redraw, section, table } from "/static/elements.js";
import { picture } from "/static/question.js";

export function laterPatients() {
  const shown = element("div", {}), node = section("later-patients", "Later patients", shown);
  node.hidden = true;
  const update = ({ laterPatients: chart }) => {
    node.hidden = chart === null;
    if (chart !== null) redraw(shown, chart, () => drawn(chart));
  };
  return { node, update };
}

function drawn(chart) {
  const answered = chart.windows.filter((each) => each.figures.some((figure) => figure !== null));
  return [
    ...chart.alarms.map((alarm) => element("p", { class: "notice bad" }, `Alarm, ${alarm}.`)),
    chart.alarms.length === 0 ? element("p", {}, answered.length === 0 ? "No window has an answer yet." : "No alarm.") : null,
    element("div", { class: "panels" }, ...chart.measures.map((measure, place) => panel(measure, place, answered))),
    table("Windows of later patients", ["Window", "First record from", "before", "State", ...chart.measures.map(({ name }) => titled(name))], chart.windows.map(line)),
    element("p", { class: "note" }, `${chart.rule} Intervals are of 95 %, noise and sampling together. The dashed line is what windows are held against.`),
  ].filter(Boolean);
}

function panel({ name, reference }, place, answered) {
  const rows = answered.flatMap(({ window, figures }) => (figures[place] === null ? [] : [[window, figures[place].estimate, figures[place].low, figures[place].high]]));
  const plot = { kind: "points", x: "window", y: "estimate", low: "low", high: "high", by: null, panel: null, reference };
  const chart = picture({ title: `Later patients, ${name}`, columns: ["window", "estimate", "low", "high"], rows, plot });
  return chart === null ? null : element("div", { class: "panel" }, element("h3", {}, titled(name)), chart);
}

function line({ window, first_day, end, due_on, query, state, figures }) {
  const words = query === null ? `due ${due_on}` : element("a", { href: `#question-${query}` }, state);
  return [String(window), ...[first_day, end, words, ...figures.map(range)].map((text) => cell({ class: "number" }, text))];
}

const titled = (name) => name[0].toUpperCase() + name.slice(1);
// As many digits as the terminal shows.
const brief = (value) => String(Number(value.toPrecision(3)));

function range(figure) {
  if (figure === null || figure.estimate === null) return "–";
  return figure.low === null || figure.high === null ? brief(figure.estimate) : `${brief(figure.estimate)} (${brief(figure.low)} to ${brief(figure.high)})`;
}
