// From a table of an answer to what its chart draws and what its CSV holds. Pure.
import { estimate } from "/static/numbers.js";

// More bars are no picture, and more points of one curve would look the same: the table has every row.
const MOST_BARS = 100;
const MOST_POINTS = 400;
// Groups that colours tell apart where a row does not name its group, and those that dashes and shapes do, too.
const MOST_COLOURS = 4, MOST_GROUPS = 6;
const isCurve = (plot) => plot.kind === "steps" || plot.kind === "line";

// The form that it is drawn in: points over a scale where their places are numbers, else one in each row.
export function formOf({ plot, columns, rows }) {
  const place = columns.indexOf(plot.x);
  return plot.kind === "points" && rows.every((row) => typeof row[place] === "number") ? "scatter" : plot.kind;
}

// A table for each value of the panel's column, as {name, table}: one drawing for each hospital.
export function panelled(table) {
  const { plot, columns, rows } = table, place = columns.indexOf(plot.panel);
  return [...Map.groupBy(rows, (row) => row[place])].map(([name, own]) => ({ name, table: { ...table, plot: { ...plot, panel: null }, rows: own } }));
}

// The least and the largest number that any panel draws: drawings are compared, so that all have one scale.
export function endsOf({ plot, columns, rows }) {
  const places = [plot.y, plot.low, plot.high].filter((name) => name !== null).map((name) => columns.indexOf(name));
  const values = rows.flatMap((row) => places.map((place) => row[place])).filter((value) => typeof value === "number");
  return values.length === 0 ? null : [Math.min(0, ...values), Math.max(...values)];
}

// {rows, left, numeric, beside}: left are those that are not drawn; numeric says whether x is a scale, beside whether
// every group has the same rows, so that groups stand beside each other in each.
export function plotted(table) {
  const { plot } = table, scale = isCurve(plot) || formOf(table) === "scatter";
  const at = (row, name) => (name === null ? null : row[table.columns.indexOf(name)]);
  const drawn = table.rows.filter((row) => typeof at(row, plot.y) === "number" && !plot.omitted?.includes(at(row, plot.x)));
  // A scale of numbers has no place for what is unknown.
  const numeric = scale && drawn.every((row) => ["number", "object"].includes(typeof at(row, plot.x)));
  const known = numeric ? drawn.filter((row) => at(row, plot.x) !== null) : drawn;
  const groups = [...Map.groupBy(known, (row) => at(row, plot.by)).values()];
  const kept = scale ? groups.slice(0, MOST_GROUPS).flatMap(sparse) : whole(groups);
  const rows = kept.map((row, number) => {
    const [x, y, low, high, by] = [plot.x, plot.y, plot.low, plot.high, plot.by].map((name) => at(row, name));
    return { x: numeric ? x : text(x), y, low: low ?? y, high: high ?? y, by: text(by), place: number, words: words(plot, { x, y, low, high, by }) };
  });
  const beside = !scale && plot.by !== null && areSame(rows);
  // Else a row says itself which group it belongs to.
  if (!scale && plot.by !== null && !beside) for (const row of rows) row.x = `${row.by}: ${row.x}`;
  const left = scale ? groups.slice(MOST_GROUPS).flat().length : known.length - kept.length;
  return { rows, left, numeric, beside, scale };
}

// Of a group all bars or none: one that ends half-way would seem to have no patients beyond. The first in any case.
function whole(groups) {
  const [first = [], ...others] = groups, bars = first.slice(0, MOST_BARS);
  for (const group of others) {
    if (bars.length + group.length > MOST_BARS) break;
    bars.push(...group);
  }
  return bars;
}

// Whether groups are few and at least half of all pairs of a group and a row are there: some may be suppressed.
function areSame(rows) {
  const groups = new Set(rows.map((row) => row.by)).size, pairs = new Set(rows.map((row) => row.x)).size * groups;
  return groups <= MOST_COLOURS && 2 * rows.length > pairs;
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

// As wardround/cli/hospital/spreadsheet.py: an apostrophe where a spreadsheet would begin a formula; numbers are none.
const FORMULA = /^(?='*[\t\r\n])|(?:^|(?<=[\t\r\n;]))(?=[\s'"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20])/g;
const PLAIN = /^[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?(?: to [+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?)?$/;
const guarded = (text) => (PLAIN.test(text) ? text : text.replace(FORMULA, "'"));
export const quoted = (value) => `"${guarded(String(value ?? "")).replaceAll('"', '""')}"`;

export const csvOf = (table) => [table.columns, ...table.rows].map((row) => row.map((value) => (typeof value === "number" ? String(value) : quoted(value))).join(",")).join("\r\n");
