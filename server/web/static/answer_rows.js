// From a table of an answer to what its chart draws and what its CSV holds. Pure.
import { estimate } from "/static/numbers.js";

// More bars are no picture, and more points of one curve would look the same: the table has every row.
const MOST_BARS = 60;
const MOST_POINTS = 400;
const isCurve = (plot) => plot.kind === "steps" || plot.kind === "line";

// {rows, left, numeric}: left are those that are not drawn; numeric says whether x is a scale.
export function plotted(table) {
  const { plot } = table;
  const at = (row, name) => (name === null ? null : row[table.columns.indexOf(name)]);
  const known = table.rows.filter((row) => typeof at(row, plot.y) === "number");
  const kept = isCurve(plot) ? known.slice(0, 0).concat(...[...Map.groupBy(known, (row) => at(row, plot.by)).values()].map(sparse)) : known.slice(0, MOST_BARS);
  const numeric = isCurve(plot) && kept.every((row) => typeof at(row, plot.x) === "number");
  const rows = kept.map((row) => {
    const [x, y, low, high, by] = [plot.x, plot.y, plot.low, plot.high, plot.by].map((name) => at(row, name));
    return { x: numeric ? x : text(x), y, low: low ?? y, high: high ?? y, by: text(by), words: words(plot, { x, y, low, high, by }) };
  });
  return { rows, left: isCurve(plot) ? 0 : known.length - kept.length, numeric };
}

// Steps must not be averaged: a point stands for itself, the first and the last always.
function sparse(rows) {
  const step = Math.ceil(rows.length / MOST_POINTS);
  return rows.filter((_, place) => place % step === 0 || place === rows.length - 1);
}

const text = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? estimate(value) : value);

function words(plot, { x, y, low, high, by }) {
  const whose = by === null ? `${plot.x} ${text(x)}` : `${plot.by} ${text(by)}, ${plot.x} ${text(x)}`;
  const between = typeof low === "number" && typeof high === "number" ? `\n95 % interval: ${estimate(low)} to ${estimate(high)}` : "";
  return `${whose}: ${estimate(y)}${between}`;
}

// A cell that begins like a formula is one for a spreadsheet. A bin may begin with a negative number, which is none.
const FORMULA = /^([=@\t\r]|[+-](?![\d. ]))/;
const quoted = (value) => `"${String(value ?? "").replace(FORMULA, "'$&").replaceAll('"', '""')}"`;

export const csvOf = (table) => [table.columns, ...table.rows].map((row) => row.map((value) => (typeof value === "number" ? String(value) : quoted(value))).join(",")).join("\r\n");
